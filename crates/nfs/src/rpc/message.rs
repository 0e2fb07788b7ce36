//! Calls and replies.

use super::auth::NO_AUTH;
use super::{AuthStat, Credential, OpaqueAuth};
use crate::xdr::{Decode, Decoder, Encode, Encoder, XdrError};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;

const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

const SUCCESS: u32 = 0;
const PROG_UNAVAIL: u32 = 1;
const PROG_MISMATCH: u32 = 2;
const PROC_UNAVAIL: u32 = 3;
const GARBAGE_ARGS: u32 = 4;
const SYSTEM_ERR: u32 = 5;

const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// A call's header; the arguments follow it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call<'a> {
    /// Chosen by the caller; the reply repeats it.
    pub xid: u32,
    /// Which program.
    pub program: u32,
    /// Which version of it.
    pub version: u32,
    /// Which procedure of that.
    pub procedure: u32,
    /// Who calls: see [`Credential::of`].
    pub credential: OpaqueAuth<'a>,
    /// What shows that it is them.
    pub verifier: OpaqueAuth<'a>,
}

/// A reply's header; the results follow it if it was a success.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// The call's.
    pub xid: u32,
    /// How it went.
    pub outcome: Outcome,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was carried out; results follow.
    Success,
    /// There is no such program here.
    ProgramUnavailable,
    /// The program has not this version.
    ProgramMismatch {
        /// The lowest version that there is.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be read.
    GarbageArguments,
    /// The server could not carry it out, for want of memory or the like.
    SystemError,
    /// The message is not of an RPC version that is spoken here.
    RpcMismatch {
        /// The lowest version that is.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The caller is refused.
    AuthError(AuthStat),
}

/// A message: on a connection with a back channel both sides call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// The peer calls.
    Call(Call<'a>),
    /// The peer replies.
    Reply(Reply),
}

/// Why a message is none that can be served.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// A call of another RPC version. It is answered with [`Outcome::RpcMismatch`].
    #[error("call {xid:#x} is of RPC version {version}")]
    Version {
        /// The call's.
        xid: u32,
        /// The version that it says it is of.
        version: u32,
    },
    /// Neither a call nor a reply, or damaged. Nothing can be answered: the connection is closed.
    #[error("no RPC message: {0}")]
    Damaged(#[from] XdrError),
}

impl<'a> Message<'a> {
    /// Takes a message's header. The decoder is then at the arguments or results.
    ///
    /// # Errors
    /// If there is none, or one of another version.
    pub fn take(from: &mut Decoder<'a>) -> Result<Self, CallError> {
        let xid = from.take()?;
        match from.take()? {
            CALL => Self::take_call(xid, from).map(Self::Call),
            REPLY => {
                let outcome = from.take()?;
                Ok(Self::Reply(Reply { xid, outcome }))
            }
            value => Err(XdrError::NoCase {
                of: "Message",
                value,
            }
            .into()),
        }
    }

    fn take_call(xid: u32, from: &mut Decoder<'a>) -> Result<Call<'a>, CallError> {
        let version = from.take()?;
        if version != RPC_VERSION {
            return Err(CallError::Version { xid, version });
        }
        Ok(Call {
            xid,
            program: from.take()?,
            version: from.take()?,
            procedure: from.take()?,
            credential: from.take()?,
            verifier: from.take()?,
        })
    }
}

impl Call<'_> {
    /// Puts a call's header, with an empty verifier.
    pub fn put(
        to: &mut Encoder,
        xid: u32,
        (program, version, procedure): (u32, u32, u32),
        credential: &Credential<'_>,
    ) {
        for word in [xid, CALL, RPC_VERSION, program, version, procedure] {
            to.put(&word);
        }
        to.put(credential);
        to.put(&NO_AUTH);
    }
}

impl Encode for Reply {
    fn encode(&self, to: &mut Encoder) {
        to.put(&self.xid);
        to.put(&REPLY);
        to.put(&self.outcome);
    }
}

/// `reply_body`. A verifier is passed over: that of AUTH_NONE and AUTH_SYS is empty.
impl Decode<'_> for Outcome {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match from.take()? {
            ACCEPTED => {
                from.take::<OpaqueAuth<'_>>()?;
                Self::accepted(from)
            }
            DENIED => match from.take()? {
                RPC_MISMATCH => {
                    let (low, high) = (from.take()?, from.take()?);
                    Ok(Self::RpcMismatch { low, high })
                }
                AUTH_ERROR => from.take().map(Self::AuthError),
                value => Err(XdrError::NoCase {
                    of: "reject_stat",
                    value,
                }),
            },
            value => Err(XdrError::NoCase {
                of: "reply_stat",
                value,
            }),
        }
    }
}

impl Outcome {
    fn accepted(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(match from.take()? {
            SUCCESS => Self::Success,
            PROG_UNAVAIL => Self::ProgramUnavailable,
            PROG_MISMATCH => {
                let (low, high) = (from.take()?, from.take()?);
                Self::ProgramMismatch { low, high }
            }
            PROC_UNAVAIL => Self::ProcedureUnavailable,
            GARBAGE_ARGS => Self::GarbageArguments,
            SYSTEM_ERR => Self::SystemError,
            value => {
                return Err(XdrError::NoCase {
                    of: "accept_stat",
                    value,
                });
            }
        })
    }
}

impl Encode for Outcome {
    fn encode(&self, to: &mut Encoder) {
        let (stat, versions) = match *self {
            Self::Success => (SUCCESS, None),
            Self::ProgramUnavailable => (PROG_UNAVAIL, None),
            Self::ProgramMismatch { low, high } => (PROG_MISMATCH, Some((low, high))),
            Self::ProcedureUnavailable => (PROC_UNAVAIL, None),
            Self::GarbageArguments => (GARBAGE_ARGS, None),
            Self::SystemError => (SYSTEM_ERR, None),
            Self::RpcMismatch { low, high } => {
                return [DENIED, RPC_MISMATCH, low, high]
                    .iter()
                    .for_each(|word| to.put(word));
            }
            Self::AuthError(why) => {
                return [DENIED, AUTH_ERROR, why.0]
                    .iter()
                    .for_each(|word| to.put(word));
            }
        };
        to.put(&ACCEPTED);
        to.put(&NO_AUTH);
        to.put(&stat);
        if let Some((low, high)) = versions {
            to.put(&low);
            to.put(&high);
        }
    }
}
