//! Volumes by their names.
//!
//! ```text
//! key: the name's bytes
//!  0         1        5
//!  +---------+--------+
//!  | version | volume |      version 1, the volume's number little-endian
//!  +---------+--------+
//! ```
//!
//! The first volume has no row: it is called `main`. A volume gets its name after it was made, so that one
//! without a name is what a crash has left; the next one that is made takes its place.

use files::VolumeId;
use index::{Quota, VolumeUse};
use meta::{MetaError, Outcome, Range, Transaction};
use thiserror::Error;

use crate::Local;

const VERSION: u8 = 1;

/// What the first volume is called.
const MAIN: &str = "main";

/// Letters of a name at most.
const NAME_MAX: usize = 64;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// What it is called; none: making it was interrupted.
    pub name: Option<String>,
    /// Its number, what it may use, and what it uses.
    pub of: VolumeUse,
}

/// Why a volume was not made or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// It has a name already used.
    #[error("there is a volume {0:?} already")]
    Exists(String),
    /// There is none of this name.
    #[error("there is no volume {0:?} (`vervain fs volume ls` lists them)")]
    None(String),
    /// Not a name that an export can have.
    #[error(
        "{0:?} is no name of a volume: letters, digits, `-`, `_` and `.`, 64 at most, not only dots"
    )]
    Name(String),
    /// A row of a volume's name is none.
    #[error("the row of volume {0:?} is damaged, or of a later version")]
    Damaged(String),
    /// The file system refuses.
    #[error("the file system refuses it: {0:?}")]
    Refused(files::Error),
    /// The metadata engine.
    #[error(transparent)]
    Rows(#[from] MetaError),
    /// Whether it has the name is not known.
    #[error("it is not known whether it was carried out: look, and try again")]
    Unknown,
}

impl Local {
    /// All volumes, by their numbers.
    ///
    /// # Errors
    /// [`VolumeError::Damaged`], the engine's.
    pub async fn volumes(&self) -> Result<Vec<Volume>, VolumeError> {
        let mut names = vec![(Self::VOLUME, MAIN.to_string())];
        for (key, row) in self.inner.names.scan(Range::all(), usize::MAX).await? {
            let name = String::from_utf8_lossy(&key).into_owned();
            match *row.value {
                [VERSION, a, b, c, d] => {
                    names.push((VolumeId(u32::from_le_bytes([a, b, c, d])), name));
                }
                _ => return Err(VolumeError::Damaged(name)),
            }
        }
        let named = |of: VolumeUse| {
            let name = names.iter().find(|(volume, _)| *volume == of.volume);
            Volume {
                name: name.map(|(_, name)| name.clone()),
                of,
            }
        };
        Ok(self.inner.index.volumes().into_iter().map(named).collect())
    }

    /// Makes a volume. It is made as a whole if the future is dropped, too.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub async fn create_volume(&self, name: &str, quota: Quota) -> Result<VolumeId, VolumeError> {
        let (own, name) = (self.clone(), name.to_string());
        self.alone(async move { own.create(&name, quota).await })
            .await
    }

    /// Sets what a volume may use. What it uses already stays.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub async fn set_quota_of(&self, name: &str, quota: Quota) -> Result<(), VolumeError> {
        let (own, name) = (self.clone(), name.to_string());
        self.alone(async move { own.bound(&name, quota).await })
            .await
    }

    /// Changes volumes: one change at a time, since each takes a volume without a name for what a crash has
    /// left, and as a task of its own, since one that is dropped in the middle leaves such a volume.
    async fn alone<T: 'static>(
        &self,
        change: impl Future<Output = Result<T, VolumeError>> + 'static,
    ) -> Result<T, VolumeError> {
        let own = self.clone();
        let task = self.inner.core.spawn(async move {
            let _turn = own.inner.volumes.acquire().await;
            match own.inner.gate.enter() {
                Some(_pass) => change.await,
                None => Err(VolumeError::Refused(files::Error::Delay)),
            }
        });
        task.await.unwrap_or(Err(VolumeError::Unknown))
    }

    async fn create(&self, name: &str, quota: Quota) -> Result<VolumeId, VolumeError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=NAME_MAX).contains(&name.len())
            && name.bytes().all(is_plain)
            && name.bytes().any(|byte| byte != b'.');
        if !is_name {
            return Err(VolumeError::Name(name.to_string()));
        }
        let all = self.volumes().await?;
        if all.iter().any(|one| one.name.as_deref() == Some(name)) {
            return Err(VolumeError::Exists(name.to_string()));
        }
        let unnamed = all.iter().find(|one| one.name.is_none());
        let last = all.iter().map(|one| one.of.volume.0).max();
        let volume = match unnamed {
            Some(one) => one.of.volume,
            None => VolumeId(last.unwrap_or(Self::VOLUME.0) + 1),
        };
        self.set_quota(volume, quota)
            .await
            .map_err(VolumeError::Refused)?;
        let mut value = vec![VERSION];
        value.extend(volume.0.to_le_bytes());
        let mut put = Transaction::new();
        let put_row = put.absent(name).and_then(|put| put.put(name, value));
        put_row.expect("one short row is within the limits");
        match self.inner.names.commit(put).await? {
            Outcome::Committed(_) => Ok(volume),
            Outcome::Conflict => Err(VolumeError::Exists(name.to_string())),
            Outcome::Unknown => Err(VolumeError::Unknown),
        }
    }

    async fn bound(&self, name: &str, quota: Quota) -> Result<(), VolumeError> {
        let all = self.volumes().await?;
        let found = all.iter().find(|one| one.name.as_deref() == Some(name));
        let volume = found
            .ok_or_else(|| VolumeError::None(name.to_string()))?
            .of
            .volume;
        self.set_quota(volume, quota)
            .await
            .map_err(VolumeError::Refused)
    }
}
