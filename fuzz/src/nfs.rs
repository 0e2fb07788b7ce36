//! NFS's wire: records in any fragments and pieces, calls and replies, operations, attributes.

use ::nfs::compound::{CompoundArgs, CompoundCall, CompoundReply, CompoundResults};
use ::nfs::rpc::{Call, Credential, Message, Records};
use ::nfs::wire::{
    CbCompound4Args, CbCompound4Res, Compound4Res, Fattr4, NfsOpnum4, NfsResop4, Nfsstat4,
};
use ::nfs::xdr::{Decoder, Encoder, Opaque, from_bytes, to_bytes};

use crate::cuts;

/// Records of a stream are bounded so that short inputs reach the bound.
const RECORD_MAX: usize = 600;

/// The bytes are a stream: its records are the same in whatever pieces it arrives, and those of a naive
/// reading.
///
/// # Panics
/// When they are not.
pub fn records(input: &[u8]) {
    let naive = naive_records(input);
    let mut random = cuts::random_of(input);
    let pieces = [
        vec![input],
        cuts::few(input, &mut random),
        cuts::many(input, &mut random),
    ];
    for pieces in pieces {
        assert_eq!(found_records(&pieces), naive);
    }
    for record in naive.0 {
        message(&record);
    }
}

/// Whole records, and whether one above the bound ended them.
type Found = (Vec<Vec<u8>>, bool);

fn found_records(pieces: &[&[u8]]) -> Found {
    let mut records = Records::new(RECORD_MAX);
    let mut found = Vec::new();
    for piece in pieces {
        records.buffer().extend_from_slice(piece);
        loop {
            match records.next_record() {
                Ok(Some(record)) => found.push(record.to_vec()),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

fn naive_records(mut rest: &[u8]) -> Found {
    let (mut found, mut record) = (Vec::new(), Vec::new());
    while let Some((marker, after)) = rest.split_first_chunk() {
        let marker = u32::from_be_bytes(*marker);
        let size = (marker & 0x7fff_ffff) as usize;
        if record.len() + size > RECORD_MAX {
            return (found, true);
        }
        let Some((fragment, after)) = after.split_at_checked(size) else {
            break;
        };
        record.extend_from_slice(fragment);
        if marker >> 31 == 1 {
            found.push(std::mem::take(&mut record));
        }
        rest = after;
    }
    (found, false)
}

/// A message: what is taken is put as it was, but for the padding.
fn message(record: &[u8]) {
    let mut from = Decoder::new(record);
    let put = match Message::take(&mut from) {
        Ok(Message::Reply(reply)) => to_bytes(&reply),
        Ok(Message::Call(call)) => {
            let Ok(credential) = Credential::of(&call.credential) else {
                return;
            };
            let mut to = Encoder::default();
            let procedure = (call.program, call.version, call.procedure);
            Call::put(&mut to, call.xid, procedure, &credential);
            to.into_bytes()
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let first = Message::take(&mut Decoder::new(record));
    let again = Message::take(&mut Decoder::new(&put));
    match (first, again) {
        (Ok(Message::Call(first)), Ok(Message::Call(again))) => {
            assert_eq!(
                Credential::of(&first.credential),
                Credential::of(&again.credential)
            );
            assert_eq!((first.xid, first.program), (again.xid, again.program));
        }
        (first, again) => assert_eq!(first, again),
    }
}

/// The bytes are a COMPOUND, its reply, or a CB_COMPOUND and its reply: what is taken is put in one way.
///
/// # Panics
/// When it is not.
pub fn compound(input: &[u8]) {
    arguments(input);
    results(input);
    settles(input, callback);
    settles(input, callback_reply);
}

fn arguments(input: &[u8]) {
    let Ok(mut args) = CompoundArgs::take(Decoder::new(input)) else {
        return;
    };
    let announced = args.left();
    let mut to = Encoder::default();
    let mut call = CompoundCall::begin(&mut to, args.tag, args.minor_version);
    let mut taken = Vec::new();
    while let Some(next) = args.next_operation() {
        match next {
            Ok(operation) => {
                call.operation(&mut to, &operation);
                taken.push(operation);
            }
            Err(bad) => {
                refused(bad.operation, bad.status);
                assert_eq!(args.next_operation(), None, "it is the last one");
            }
        }
    }
    call.finish(&mut to);
    assert!(taken.len() <= announced as usize);
    let bytes = to.into_bytes();
    let mut again = CompoundArgs::take(Decoder::new(&bytes)).expect("what was put");
    for operation in taken {
        let next = again.next_operation().expect("as many");
        assert_eq!(next.map(|next| to_bytes(&next)), Ok(to_bytes(&operation)));
    }
    assert_eq!(again.next_operation(), None);
}

/// The answer to an operation that is refused can be read.
fn refused(operation: NfsOpnum4, status: Nfsstat4) {
    let mut to = Encoder::default();
    let mut reply = CompoundReply::begin(&mut to, Opaque(&[]));
    reply.failed(&mut to, operation, status);
    reply.finish(&mut to, status);
    from_bytes::<Compound4Res<'_>>(to.as_bytes()).expect("a reply");
}

fn results(input: &[u8]) {
    let Ok(results) = CompoundResults::take(Decoder::new(input)) else {
        return;
    };
    for found in results.flatten() {
        settles(&to_bytes(&found), self::result);
    }
}

/// A type's bytes again, if bytes begin with a value of it.
type Recode = fn(&[u8]) -> Option<Vec<u8>>;

/// What is taken is put in one way. That may be less than came, by what bitmaps have beyond their room.
fn settles(bytes: &[u8], recode: Recode) {
    if let Some(once) = recode(bytes) {
        assert_eq!(recode(&once).as_ref(), Some(&once));
    }
}

fn callback(bytes: &[u8]) -> Option<Vec<u8>> {
    let call: CbCompound4Args<'_> = Decoder::new(bytes).take().ok()?;
    Some(to_bytes(&call))
}

fn callback_reply(bytes: &[u8]) -> Option<Vec<u8>> {
    let reply: CbCompound4Res<'_> = Decoder::new(bytes).take().ok()?;
    Some(to_bytes(&reply))
}

fn result(bytes: &[u8]) -> Option<Vec<u8>> {
    let result: NfsResop4<'_> = Decoder::new(bytes).take().ok()?;
    Some(to_bytes(&result))
}

/// The bytes are an `fattr4`: attributes come in order, and put again they are the same.
///
/// # Panics
/// When they are not.
pub fn attributes(input: &[u8]) {
    let Ok(fattr) = Decoder::new(input).take::<Fattr4<'_>>() else {
        return;
    };
    let all: Result<Vec<_>, _> = fattr.attributes().collect();
    let Ok(all) = all else {
        return;
    };
    let mut to = Encoder::default();
    let mut rest = all.iter();
    ::nfs::wire::put_attributes(&mut to, &fattr.attrmask, |_| rest.next().cloned());
    let again: Fattr4<'_> = from_bytes(to.as_bytes()).expect("what was put");
    assert_eq!(again.attrmask, fattr.attrmask);
    let mut twice = Encoder::default();
    ::nfs::wire::put_attributes(&mut twice, &again.attrmask, {
        let mut same = again.attributes();
        move |_| same.next().and_then(Result::ok)
    });
    assert_eq!(twice.as_bytes(), to.as_bytes());
}
