//! Where datagrams come from. The sender's queue pair number alone does not tell: another address
//! may have one of the same number. The address is in the global route header before the payload.

use verbs::Gid;
use verbs::wr::GRH_LEN;

/// Where an IPv6 header has its version, its sender and its receiver.
const V6_VERSION: usize = 0;
const V6_SENDER: usize = 8;
const V6_RECEIVER: usize = 24;
/// Where an IPv4 header has its sender; it lies at the end. An IPv6 header has a part of the
/// receiver there.
const V4_SENDER: usize = 32;

/// An address as headers show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// What is at `V4_SENDER` in every datagram from there, if the sender is named so. That says it all:
    /// in an IPv6 header the bytes would be of the receiver, which has an IPv4 address and so 0.0.255.255
    /// there, and that is nobody's. Otherwise no word at all.
    v4: u64,
    /// Otherwise the sender, and the word there, which is of the receiver.
    v6: ([u8; 16], [u8; 4]),
}

impl Source {
    /// The sender with a GID, as the owner of another GID sees it.
    pub(super) fn new(sender: Gid, receiver: Gid) -> Self {
        let v4 = match (sender.ipv4(), receiver.ipv4()) {
            (Some(sender), Some(_)) => u64::from(u32::from_ne_bytes(sender.octets())),
            _ => u64::MAX,
        };
        let at = V4_SENDER - V6_RECEIVER;
        let word = [0, 1, 2, 3].map(|byte| receiver.0[at + byte]);
        Source {
            v4,
            v6: (sender.0, word),
        }
    }

    /// Whether a datagram with this header is from there.
    #[inline(always)]
    pub(super) fn has_sent(&self, header: &[u8; GRH_LEN]) -> bool {
        let word = [0, 1, 2, 3].map(|byte| header[V4_SENDER + byte]);
        u64::from(u32::from_ne_bytes(word)) == self.v4 || self.has_sent_v6(header)
    }

    #[cold]
    #[inline(never)]
    fn has_sent_v6(&self, header: &[u8; GRH_LEN]) -> bool {
        let (address, word) = &self.v6;
        self.v4 == u64::MAX
            && header[V6_VERSION] >> 4 == 6
            && header[V6_SENDER..][..16] == *address
            && header[V4_SENDER..][..4] == *word
    }
}
