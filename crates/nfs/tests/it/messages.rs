//! Calls and replies, whole and damaged.

use nfs::rpc::{
    AuthStat, AuthSys, Call, CallError, Credential, Message, OpaqueAuth, Outcome, Reply,
};
use nfs::xdr::{Decoder, Encoder, Opaque, XdrError, to_bytes};
use proptest::prelude::*;

fn taken(bytes: &[u8]) -> Result<(Message<'_>, usize), CallError> {
    let mut from = Decoder::new(bytes);
    let message = Message::take(&mut from)?;
    Ok((message, from.rest().len()))
}

fn outcomes() -> Vec<Outcome> {
    vec![
        Outcome::Success,
        Outcome::ProgramUnavailable,
        Outcome::ProgramMismatch { low: 4, high: 4 },
        Outcome::ProcedureUnavailable,
        Outcome::GarbageArguments,
        Outcome::SystemError,
        Outcome::RpcMismatch { low: 2, high: 2 },
        Outcome::AuthError(AuthStat::AUTH_REJECTEDCRED),
    ]
}

#[test]
fn replies_are_those_of_the_rfc() {
    let words = |outcome| -> Vec<u32> {
        let bytes = to_bytes(&Reply { xid: 9, outcome });
        let (words, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty());
        words.iter().map(|word| u32::from_be_bytes(*word)).collect()
    };
    let expected: [&[u32]; 8] = [
        &[9, 1, 0, 0, 0, 0],
        &[9, 1, 0, 0, 0, 1],
        &[9, 1, 0, 0, 0, 2, 4, 4],
        &[9, 1, 0, 0, 0, 3],
        &[9, 1, 0, 0, 0, 4],
        &[9, 1, 0, 0, 0, 5],
        &[9, 1, 1, 0, 2, 2],
        &[9, 1, 1, 1, 2],
    ];
    for (outcome, expected) in outcomes().into_iter().zip(expected) {
        assert_eq!(words(outcome), expected, "{outcome:?}");
    }
}

#[test]
fn every_reply_comes_back_and_is_refused_when_it_is_cut() {
    for outcome in outcomes() {
        let reply = Reply { xid: 5, outcome };
        let bytes = to_bytes(&reply);
        assert_eq!(taken(&bytes), Ok((Message::Reply(reply), 0)));
        for cut in 0..bytes.len() {
            let short = taken(&bytes[..cut]);
            assert_eq!(
                short,
                Err(CallError::Damaged(XdrError::Short)),
                "{outcome:?} cut to {cut}"
            );
        }
    }
}

fn call(credential: &Credential<'_>) -> Vec<u8> {
    let mut to = Encoder::default();
    Call::put(&mut to, 1, (100_003, 4, 1), credential);
    to.into_bytes()
}

proptest! {
    #[test]
    fn a_call_says_who_calls(
        stamp: u32, uid: u32, gid: u32,
        name in prop::collection::vec(any::<u8>(), 0..=255),
        gids in prop::collection::vec(any::<u32>(), 0..=16),
    ) {
        let gids = gids.into_iter().collect();
        let machine_name = Opaque(&name);
        let user = AuthSys { stamp, machine_name, uid, gid, gids };
        let credential = Credential::Sys(user);
        let bytes = call(&credential);
        let (message, rest) = taken(&bytes).expect("a call");
        let Message::Call(call) = message else { panic!("a call") };
        prop_assert_eq!((call.xid, call.program, call.version, call.procedure, rest), (1, 100_003, 4, 1, 0));
        prop_assert_eq!(Credential::of(&call.credential), Ok(credential));
        for cut in 0..bytes.len() {
            prop_assert!(taken(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((Message::Call(call), rest)) = taken(&bytes) {
            prop_assert!(rest <= bytes.len() - 40);
            let _ = Credential::of(&call.credential);
        }
    }
}

#[test]
fn credentials_beyond_their_bounds_are_refused() {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    let of = |flavor, body: &[u8]| {
        let body = Opaque(body);
        Credential::of(&OpaqueAuth { flavor, body }).map(|_| ())
    };
    let groups = |count: u32| {
        let all: Vec<u32> = [0, 0, 1, 1, count].into_iter().chain(0..count).collect();
        words(&all)
    };
    assert_eq!(of(1, &groups(16)), Ok(()));
    assert_eq!(of(1, &groups(17)), Err(AuthStat::AUTH_BADCRED));
    let name = [words(&[0, 256]), vec![b'a'; 256], words(&[1, 1, 0])].concat();
    assert_eq!(of(1, &name), Err(AuthStat::AUTH_BADCRED));
    assert_eq!(of(1, &[]), Err(AuthStat::AUTH_BADCRED));
    assert_eq!(of(0, &[]), Ok(()));
    for flavor in [2, 3, 6, 7, u32::MAX] {
        assert_eq!(of(flavor, &groups(0)), Err(AuthStat::AUTH_REJECTEDCRED));
    }
    // The body's own bound of 400 bytes.
    let mut bytes = words(&[1, 0, 2, 100_003, 4, 1, 1, 401]);
    bytes.resize(bytes.len() + 500, 0);
    let too_long = XdrError::TooLong { len: 401, max: 400 };
    assert_eq!(taken(&bytes), Err(CallError::Damaged(too_long)));
}

#[test]
fn another_version_of_rpc_has_its_own_answer() {
    let mut bytes = call(&Credential::None);
    bytes[11] = 3;
    assert_eq!(
        taken(&bytes),
        Err(CallError::Version { xid: 1, version: 3 })
    );
    bytes[7] = 2;
    assert!(matches!(taken(&bytes), Err(CallError::Damaged(_))));
}
