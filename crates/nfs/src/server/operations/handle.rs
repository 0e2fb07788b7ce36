//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH.

use crate::server::compound::{Compound, put};
use crate::server::handles::Place;
use crate::wire::*;
use crate::xdr::{Encoder, Opaque};

impl Compound<'_> {
    /// PUTFH (RFC 8881, section 18.19). Whether the object is there shows when something is done with
    /// it.
    pub(super) fn putfh(&mut self, handle: &NfsFh4<'_>) -> Result<(), Nfsstat4> {
        let place = self.door.handles.open(handle)?;
        match place {
            Place::Pseudo(node) if !self.door.exports.has(node) => {
                return Err(Nfsstat4::NFS4ERR_STALE);
            }
            Place::Pseudo(_) => {}
            Place::Object(object) => {
                self.caller(object)?;
            }
        }
        self.go(place);
        Ok(())
    }

    /// PUTROOTFH (RFC 8881, section 18.21).
    pub(super) fn putrootfh(&mut self) -> Result<(), Nfsstat4> {
        self.go(self.door.exports.root());
        Ok(())
    }

    /// GETFH (RFC 8881, section 18.8).
    pub(super) fn getfh(&self, out: &mut Encoder) -> Nfsstat4 {
        let sealed = self.place().map(|place| self.door.handles.seal(place));
        let result = sealed.as_ref().map(|bytes| Getfh4Resok {
            object: Opaque(bytes),
        });
        put(out, NfsOpnum4::OP_GETFH, result.map_err(|status| *status))
    }

    /// SAVEFH (RFC 8881, section 18.28).
    pub(super) fn savefh(&mut self) -> Result<(), Nfsstat4> {
        self.saved = Some(self.place()?);
        self.saved_stateid.clone_from(&self.current_stateid);
        Ok(())
    }

    /// RESTOREFH (RFC 8881, section 18.27).
    pub(super) fn restorefh(&mut self) -> Result<(), Nfsstat4> {
        // 4.1 has no code of its own for that.
        let none = if self.minor == 0 {
            Nfsstat4::NFS4ERR_RESTOREFH
        } else {
            Nfsstat4::NFS4ERR_NOFILEHANDLE
        };
        self.current = Some(self.saved.ok_or(none)?);
        self.current_stateid.clone_from(&self.saved_stateid);
        Ok(())
    }
}
