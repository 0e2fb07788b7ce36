//! Large values on their way out, where a value has to be waited for: each is read once, and kept
//! while its pieces are asked for. An engine whose answers are at hand needs none of this.

use engine::Segments;

/// A value whose first piece has been answered.
#[derive(Debug)]
pub(super) struct Kept {
    client: u32,
    key: Vec<u8>,
    cas: u64,
    pub(super) flags: u32,
    pub(super) value: Vec<u8>,
    used_ns: u64,
}

/// The values that a core keeps.
#[derive(Debug)]
pub(super) struct Outgoing {
    values: Vec<Kept>,
    count_max: usize,
    idle_ns: u64,
}

impl Outgoing {
    pub(super) fn new(count_max: usize, idle_ns: u64) -> Self {
        Outgoing {
            values: Vec::new(),
            count_max,
            idle_ns,
        }
    }

    /// Keeps a value for a client, if there is room: without it, each piece has the value read
    /// again. One client never takes the last place if there are several.
    pub(super) fn keep(
        &mut self,
        (client, key): (u32, &[u8]),
        (cas, flags, value): (u64, u32, Segments<'_>),
        now_ns: u64,
    ) {
        self.values
            .retain(|kept| kept.client != client || kept.key != key);
        let held = self.values.iter().filter(|kept| kept.client == client);
        let held = held.count();
        if held > 0 && held + 1 >= self.count_max {
            return;
        }
        if self.values.len() >= self.count_max {
            let is_idle = |kept: &Kept| now_ns.saturating_sub(kept.used_ns) > self.idle_ns;
            let Some(idle) = self.values.iter().position(is_idle) else {
                return;
            };
            self.values.swap_remove(idle);
        }
        self.values.push(Kept {
            client,
            key: key.to_vec(),
            cas,
            flags,
            value: value.to_vec(),
            used_ns: now_ns,
        });
    }

    /// The value of a client's key under this token, if it is kept.
    pub(super) fn find(
        &mut self,
        (client, key): (u32, &[u8]),
        cas: u64,
        now_ns: u64,
    ) -> Option<&Kept> {
        let is_it = |kept: &&mut Kept| kept.client == client && kept.cas == cas && kept.key == key;
        let kept = self.values.iter_mut().find(is_it)?;
        kept.used_ns = now_ns;
        Some(kept)
    }

    /// Forgets a value whose last piece has been answered.
    pub(super) fn end(&mut self, (client, key): (u32, &[u8])) {
        self.values
            .retain(|kept| kept.client != client || kept.key != key);
    }

    /// Forgets a client's values.
    pub(super) fn release_client(&mut self, client: u32) {
        self.values.retain(|kept| kept.client != client);
    }

    /// Values that are kept.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_keep_them_all_and_idle_ones_make_room() {
        let mut outgoing = Outgoing::new(3, 100);
        let keep = |outgoing: &mut Outgoing, client, key: &[u8], now_ns| {
            outgoing.keep((client, key), (7, 0, b"value".into()), now_ns);
            outgoing.find((client, key), 7, now_ns).is_some()
        };
        assert!(keep(&mut outgoing, 1, b"a", 0));
        assert!(keep(&mut outgoing, 1, b"b", 50));
        assert!(!keep(&mut outgoing, 1, b"c", 50));
        assert!(keep(&mut outgoing, 2, b"a", 50));
        assert!(!keep(&mut outgoing, 3, b"a", 100));
        assert!(keep(&mut outgoing, 3, b"a", 101));
        assert!(outgoing.find((1, b"a"), 7, 101).is_none(), "it was idle");
        assert!(outgoing.find((1, b"b"), 8, 101).is_none(), "another token");
        outgoing.end((2, b"a"));
        outgoing.release_client(1);
        assert_eq!(outgoing.len(), 1);
    }
}
