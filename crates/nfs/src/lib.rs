//! NFSv4 without I/O: XDR, RPC and the protocol's types, for a server and for a client.
//!
//! Bytes come in and bytes go out; who reads the socket comes later. The wire is drawn in
//! `docs/design/nfs.md`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`xdr`] | numbers, bytes and arrays: [`Decoder`](xdr::Decoder), [`Encoder`](xdr::Encoder) |
//! | [`rpc`] | calls, replies, credentials, records on a stream |
//! | [`wire`] | the types of NFSv4.0 to 4.2, from the RFCs' own descriptions |
//! | [`compound`] | COMPOUND one operation at a time, for both sides |
//!
//! ```
//! use nfs::compound::{CompoundArgs, CompoundCall};
//! use nfs::rpc::{self, Call, Credential, Message, Records};
//! use nfs::wire::{FATTR4_SIZE, Bitmap4, Getattr4Args, NfsArgop4};
//! use nfs::xdr::{Decoder, Encoder};
//!
//! // A client asks for the root's size.
//! let mut out = Encoder::default();
//! rpc::put_record(&mut out, |out| {
//!     let procedure = (rpc::NFS_PROGRAM, rpc::NFS_VERSION, rpc::PROC_COMPOUND);
//!     Call::put(out, 7, procedure, &Credential::None);
//!     let mut call = CompoundCall::begin(out, "a size".into(), 0);
//!     call.operation(out, &NfsArgop4::Putrootfh);
//!     let attr_request = Bitmap4::of(&[FATTR4_SIZE]);
//!     call.operation(out, &NfsArgop4::Getattr(Getattr4Args { attr_request }));
//!     call.finish(out);
//! });
//!
//! // A server finds the call in what the connection delivers.
//! let mut records = Records::new(1 << 20);
//! records.buffer().extend_from_slice(out.as_bytes());
//! let record = records.next_record()?.expect("a whole record");
//! let mut from = Decoder::new(record);
//! let Message::Call(call) = Message::take(&mut from)? else { unreachable!() };
//! assert_eq!((call.xid, call.procedure), (7, rpc::PROC_COMPOUND));
//! let mut args = CompoundArgs::take(from)?;
//! assert_eq!(args.next_operation(), Some(Ok(NfsArgop4::Putrootfh)));
//! assert!(matches!(args.next_operation(), Some(Ok(NfsArgop4::Getattr(_)))));
//! assert_eq!(args.next_operation(), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

#[macro_use]
pub mod xdr;
pub mod client;
pub mod compound;
mod ended;
pub mod rpc;
pub mod server;
pub mod wire;
