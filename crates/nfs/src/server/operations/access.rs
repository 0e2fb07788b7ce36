//! ACCESS.

use files::{Access, Answer, Request};

use crate::server::compound::Compound;
use crate::server::handles::Place;
use crate::wire::*;

/// Each right of the protocol with what it is here.
const RIGHTS: [(u32, Access); 9] = [
    (ACCESS4_READ, Access::READ),
    (ACCESS4_LOOKUP, Access::LOOKUP),
    (ACCESS4_MODIFY, Access::MODIFY),
    (ACCESS4_EXTEND, Access::EXTEND),
    (ACCESS4_DELETE, Access::DELETE),
    (ACCESS4_EXECUTE, Access::EXECUTE),
    // Extended attributes are read and written by who may read and write the object (RFC 8276,
    // section 8.5).
    (ACCESS4_XAREAD, Access::READ),
    (ACCESS4_XAWRITE, Access::MODIFY),
    (ACCESS4_XALIST, Access::READ),
];

impl Compound<'_> {
    /// ACCESS (RFC 8881, section 18.1).
    pub(super) async fn access(&self, of: &Access4Args) -> Result<Access4Resok, Nfsstat4> {
        let known = if self.minor < 2 {
            &RIGHTS[..6]
        } else {
            &RIGHTS[..]
        };
        let asked = known.iter().filter(|(bit, _)| of.access & bit != 0);
        let granted = match self.place()? {
            Place::Pseudo(_) => Access::READ | Access::LOOKUP,
            Place::Object(object) => self.rights(object).await?,
        };
        let mut answer = Access4Resok {
            supported: 0,
            access: 0,
        };
        for (bit, right) in asked {
            answer.supported |= bit;
            if granted.intersects(*right) {
                answer.access |= bit;
            }
        }
        Ok(answer)
    }

    /// What the caller may do with an object, as exported.
    async fn rights(&self, object: files::Handle) -> Result<Access, Nfsstat4> {
        let caller = self.caller(object)?;
        let request = Request::Access(object, Access::all());
        let Answer::Access(granted) = self.ask(&caller, request).await? else {
            return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
        };
        let export = self.door.exports.of(object.volume, self.connection.peer());
        let changes = Access::MODIFY | Access::EXTEND | Access::DELETE;
        if export.is_some_and(|export| export.read_only) {
            return Ok(granted - changes);
        }
        Ok(granted)
    }
}
