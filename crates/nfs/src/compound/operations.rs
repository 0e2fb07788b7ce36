//! Which operations each minor version has.

use crate::wire::{NfsOpnum4, Nfsstat4};

/// The first operations of 4.0, of 4.1, of 4.2, and the first number after those and RFC 8276's.
const FIRST: [u32; 4] = [3, 40, 59, 76];

/// Operations that sessions have replaced (RFC 8881, section 1.8 and table 16).
const ONLY_4_0: [NfsOpnum4; 5] = [
    NfsOpnum4::OP_OPEN_CONFIRM,
    NfsOpnum4::OP_RENEW,
    NfsOpnum4::OP_SETCLIENTID,
    NfsOpnum4::OP_SETCLIENTID_CONFIRM,
    NfsOpnum4::OP_RELEASE_LOCKOWNER,
];

/// Whether an operation is one of a minor version.
///
/// # Errors
/// NFS4ERR_OP_ILLEGAL if it has no such operation, NFS4ERR_NOTSUPP if it has it no more.
pub fn is_operation_of(minor_version: u32, operation: NfsOpnum4) -> Result<(), Nfsstat4> {
    let end = FIRST[(minor_version as usize + 1).min(3)];
    if operation.0 < FIRST[0] || operation.0 >= end {
        return Err(Nfsstat4::NFS4ERR_OP_ILLEGAL);
    }
    if minor_version > 0 && ONLY_4_0.contains(&operation) {
        return Err(Nfsstat4::NFS4ERR_NOTSUPP);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minor_version_has_its_operations() {
        let of = |minor, number| is_operation_of(minor, NfsOpnum4(number));
        for number in 0..200 {
            let named = NfsOpnum4(number).name().is_some();
            assert_eq!(
                of(2, number) != Err(Nfsstat4::NFS4ERR_OP_ILLEGAL),
                named,
                "{number}"
            );
        }
        for (operation, results) in [
            (NfsOpnum4::OP_ACCESS, [true, true, true]),
            (NfsOpnum4::OP_SETCLIENTID, [true, false, false]),
            (NfsOpnum4::OP_BACKCHANNEL_CTL, [false, true, true]),
            (NfsOpnum4::OP_RECLAIM_COMPLETE, [false, true, true]),
            (NfsOpnum4::OP_ALLOCATE, [false, false, true]),
            (NfsOpnum4::OP_REMOVEXATTR, [false, false, true]),
            (NfsOpnum4::OP_ILLEGAL, [false; 3]),
        ] {
            let found = [0, 1, 2].map(|minor| is_operation_of(minor, operation).is_ok());
            assert_eq!(found, results, "{operation:?}");
        }
        assert_eq!(of(1, 35), Err(Nfsstat4::NFS4ERR_NOTSUPP));
        assert_eq!(of(0, 40), Err(Nfsstat4::NFS4ERR_OP_ILLEGAL));
    }
}
