//! Numbers with a meaning, each a type of its own so that none is taken for another.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

number!(
    /// A protection domain's number within its NIC.
    PdNum, u32
);
number!(
    /// A completion queue's number within its NIC.
    CqNum, u32
);
number!(
    /// A completion channel's number within its NIC.
    ChannelNum, u32
);
number!(
    /// A shared receive queue's number within its NIC.
    SrqNum, u32
);
number!(
    /// An address handle's number within its NIC.
    AhNum, u32
);
number!(
    /// A queue pair's number, 24 bits, unique on its GID.
    QpNum, u32
);
number!(
    /// The key by which local work requests name a memory region.
    Lkey, u32
);
number!(
    /// The key by which a peer names a memory region.
    Rkey, u32
);
number!(
    /// A packet sequence number, 24 bits.
    Psn, u32
);
number!(
    /// A datagram queue key. A datagram is accepted only if its key is the receiver's.
    Qkey, u32
);

number!(
    /// What a NIC says of its own about why a request failed; its documentation has the numbers. 0
    /// says nothing.
    VendorErr, u32
);
number!(
    /// The address that work requests use for a region's first byte, local and remote ones alike.
    Iova, u64
);

number!(
    /// A partition key: 15 bits that name the partition, and the top one for full membership.
    Pkey, u16
);
number!(
    /// A device's identity: an EUI-64.
    Guid, u64
);

impl Qkey {
    /// Whether its top bit is set: then only a queue pair that has it as its own may send it.
    #[inline]
    pub const fn is_controlled(self) -> bool {
        self.0 >> 31 == 1
    }

    /// The key that a datagram carries whose request says this one, from a queue pair with a key of
    /// its own: that, if this one is [controlled](Self::is_controlled) (InfiniBand specification,
    /// volume 1, section 10.2.5).
    #[must_use]
    pub const fn sent_by(self, own: Qkey) -> Qkey {
        if self.is_controlled() { own } else { self }
    }
}

impl Iova {
    /// The one of memory that work requests name by its own address.
    #[inline]
    pub fn of(start: NonNull<u8>) -> Self {
        Iova(start.addr().get() as u64)
    }
}

impl Pkey {
    /// The partition that everybody is in, as a full member.
    pub const DEFAULT: Pkey = Pkey(0xffff);
}

impl QpNum {
    /// The largest queue pair number: 24 bits.
    pub const MAX: QpNum = QpNum(0x00ff_ffff);

    /// The number that datagrams to a multicast group go to.
    pub const MULTICAST: QpNum = QpNum(0x00ff_ffff);
}

/// A port's global identifier: 16 bytes, for RoCEv2 an IPv4-mapped or IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IPv4 address: `::ffff:a.b.c.d`.
    pub fn from_ipv4(address: Ipv4Addr) -> Self {
        Gid(address.to_ipv6_mapped().octets())
    }

    /// Its second half: the interface's identifier.
    pub fn low(&self) -> Guid {
        let all = u128::from_be_bytes(self.0);
        Guid(all as u64)
    }

    /// The GID's IPv4 address, when it is an IPv4-mapped one.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Whether it names a group of receivers: an IPv6 multicast address, or an IPv4-mapped one.
    pub fn is_multicast(&self) -> bool {
        let address = Ipv6Addr::from(self.0);
        address.is_multicast() || self.ipv4().is_some_and(|ipv4| ipv4.is_multicast())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Ipv6Addr::from(self.0))
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// A place in a peer's memory: an address of a region there, and the region's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAddr {
    /// Address, counted from the region's [`Iova`].
    pub addr: u64,
    /// The peer's key.
    pub rkey: Rkey,
}

impl RemoteAddr {
    /// The place `bytes` further on in the same region.
    #[must_use]
    #[inline]
    pub fn offset(self, bytes: u64) -> Self {
        RemoteAddr {
            addr: self.addr.wrapping_add(bytes),
            rkey: self.rkey,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controlled_key_is_sent_as_the_own_one() {
        let own = Qkey(5);
        assert_eq!(Qkey(0x7fff_ffff).sent_by(own), Qkey(0x7fff_ffff));
        assert_eq!(Qkey(0x8000_0000).sent_by(own), own);
        assert_eq!(
            Qkey(0xffff_ffff).sent_by(Qkey(0x8000_0001)),
            Qkey(0x8000_0001)
        );
    }

    #[test]
    fn a_gid_of_an_ipv4_address_reads_back() {
        let address = Ipv4Addr::new(10, 0, 0, 7);
        let gid = Gid::from_ipv4(address);
        assert_eq!(gid.ipv4(), Some(address));
        assert_eq!(gid.to_string(), "::ffff:10.0.0.7");
        assert_eq!(Gid([1; 16]).ipv4(), None);
        assert!(!gid.is_multicast());
    }

    #[test]
    fn groups_have_addresses_of_their_own() {
        let group = Ipv4Addr::new(239, 1, 2, 3);
        assert!(Gid::from_ipv4(group).is_multicast());
        let mut bytes = [0; 16];
        (bytes[0], bytes[15]) = (0xff, 1);
        assert!(Gid(bytes).is_multicast());
        assert!(!Gid::default().is_multicast());
    }
}
