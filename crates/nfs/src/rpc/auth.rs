//! Who calls.

use arrayvec::ArrayVec;

use crate::xdr::{Decode, Decoder, Encode, Encoder, Opaque, XdrError};

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

xdr_struct! {
/// `opaque_auth` (RFC 5531, section 8.2): a credential or a verifier, of some flavor.
pub struct OpaqueAuth<'a> {
    /// What the body is.
    flavor: u32,
    /// Something that the flavor gives a meaning.
    body: Opaque<'a, 400>,
} }

xdr_struct! {
/// `authsys_parms` (RFC 5531, appendix A): what a client says that its user is.
#[derive(Default)]
pub struct AuthSys<'a> {
    /// Anything that the client has chosen.
    stamp: u32,
    /// The client's name for itself.
    machine_name: Opaque<'a, 255>,
    /// The effective user.
    uid: u32,
    /// The effective group.
    gid: u32,
    /// Further groups.
    gids: ArrayVec<u32, 16>,
} }

xdr_enum! {
/// `auth_stat` (RFC 5531, section 9): why a credential or a verifier is refused.
pub struct AuthStat {
    AUTH_OK = 0,
    AUTH_BADCRED = 1,
    AUTH_REJECTEDCRED = 2,
    AUTH_BADVERF = 3,
    AUTH_REJECTEDVERF = 4,
    AUTH_TOOWEAK = 5,
    AUTH_INVALIDRESP = 6,
    AUTH_FAILED = 7,
    RPCSEC_GSS_CREDPROBLEM = 13,
    RPCSEC_GSS_CTXPROBLEM = 14,
} }

/// Who calls, of the flavors that are served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Credential<'a> {
    /// Nobody in particular (AUTH_NONE).
    None,
    /// A user by number, on the client's word (AUTH_SYS).
    Sys(AuthSys<'a>),
}

impl<'a> Credential<'a> {
    /// Reads a call's credential.
    ///
    /// # Errors
    /// AUTH_BADCRED for an AUTH_SYS credential that cannot be read, AUTH_REJECTEDCRED for flavors that
    /// are not served, RPCSEC_GSS among them, as libtirpc answers.
    pub fn of(auth: &OpaqueAuth<'a>) -> Result<Self, AuthStat> {
        match auth.flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => match Decoder::new(auth.body.0).take() {
                Ok(user) => Ok(Self::Sys(user)),
                Err(_) => Err(AuthStat::AUTH_BADCRED),
            },
            _ => Err(AuthStat::AUTH_REJECTEDCRED),
        }
    }
}

/// As `opaque_auth`, without a copy in between.
impl Encode for Credential<'_> {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::None => to.put(&NO_AUTH),
            Self::Sys(user) => {
                to.put(&AUTH_SYS);
                let length = to.later();
                let start = to.size();
                to.put(user);
                // Four numbers, 256 bytes and 17 words: below the bound of 400.
                to.fill_in(length, (to.size() - start) as u32);
            }
        }
    }
}

/// AUTH_NONE with an empty body.
pub(super) const NO_AUTH: OpaqueAuth<'_> = OpaqueAuth {
    flavor: AUTH_NONE,
    body: Opaque(&[]),
};
