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
    /// What is at `V4_SENDER` in every datagram from there. Over IPv4 that says it all: in an IPv6
    /// header the bytes would be of the receiver, which has an IPv4 address and so 0.0.255.255
    /// there, and that is nobody's.
    word: u32,
    /// The sender, if it takes an IPv6 header to name it.
    v6: Option<[u8; 16]>,
}

impl Source {
    /// The sender with a GID, as the owner of another GID sees it.
    pub(super) fn new(sender: Gid, receiver: Gid) -> Self {
        let (bytes, v6) = match (sender.ipv4(), receiver.ipv4()) {
            (Some(sender), Some(_)) => (sender.octets(), None),
            _ => {
                let at = V4_SENDER - V6_RECEIVER;
                let [a, b, c, d] = [0, 1, 2, 3].map(|byte| receiver.0[at + byte]);
                ([a, b, c, d], Some(sender.0))
            }
        };
        Source {
            word: u32::from_ne_bytes(bytes),
            v6,
        }
    }

    /// Whether a datagram with this header is from there.
    #[inline]
    pub(super) fn has_sent(&self, header: &[u8; GRH_LEN]) -> bool {
        header[V4_SENDER..][..4] == self.word.to_ne_bytes()
            && self.v6.as_ref().is_none_or(|v6| has_v6_sent(v6, header))
    }
}

#[cold]
fn has_v6_sent(address: &[u8; 16], header: &[u8; GRH_LEN]) -> bool {
    header[V6_VERSION] >> 4 == 6 && header[V6_SENDER..][..16] == *address
}
