//! Rows of the door's own.

use crate::{Answer, Error};

use super::world::World;

/// Bytes of a key, of a value, and of a page of rows at most.
const KEY_LEN_MAX: usize = 512;
const VALUE_LEN_MAX: usize = 64 << 10;
const PAGE_LEN_MAX: usize = 256 << 10;

impl World {
    pub(super) fn put_record(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<Answer, Error> {
        if key.is_empty() {
            return Err(Error::Invalid);
        }
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err(Error::TooLarge);
        }
        self.records.insert(key, value);
        Ok(Answer::Done)
    }

    pub(super) fn remove_record(&mut self, key: &[u8]) -> Result<Answer, Error> {
        self.records.remove(key);
        Ok(Answer::Done)
    }

    pub(super) fn records_after(&self, after: Vec<u8>) -> Result<Answer, Error> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        let rows = self.records.iter().filter(|(key, _)| **key > after);
        for (key, value) in rows {
            bytes += key.len() + value.len();
            if bytes > PAGE_LEN_MAX && !page.is_empty() {
                break;
            }
            page.push((key.clone(), value.clone()));
        }
        Ok(Answer::Records(page))
    }
}
