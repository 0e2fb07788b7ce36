//! Commands from bytes.

use super::*;

/// A command of zeros, as long as it has to be.
fn command(number: usize) -> Vec<u8> {
    let len = number::LENGTHS[number];
    Writer::default()
        .u32(number as u32)
        .u16(len as u16)
        .u16(1024)
        .up_to(HEADER + len)
        .done()
}

#[test]
fn whole_commands_are_understood() {
    for number in 0..number::LENGTHS.len() {
        // The kernel reads no options, and one that connects nothing is no connection.
        if [number::GET_OPTION, number::CONNECT].contains(&number) {
            assert!(Command::parse(&command(number)).is_err(), "{number}");
        } else {
            assert!(Command::parse(&command(number)).is_ok(), "{number}");
        }
    }
}

#[test]
fn what_is_cut_is_refused() {
    for number in 0..number::LENGTHS.len() {
        let whole = command(number);
        for len in 0..whole.len() {
            // Its header says more than there is.
            assert_eq!(Command::parse(&whole[..len]), Err(libc::EINVAL));
            // Its header says less than it needs.
            let mut short = whole[..len].to_vec();
            if len >= HEADER && number != number::GET_OPTION {
                short[4..6].copy_from_slice(&((len - HEADER) as u16).to_ne_bytes());
                assert_eq!(Command::parse(&short), Err(libc::EINVAL), "{number}: {len}");
            }
        }
    }
}

#[test]
fn unknown_commands_are_refused() {
    for number in [number::LENGTHS.len() as u32, 1 << 16, u32::MAX] {
        let bytes = Writer::default().u32(number).up_to(HEADER + 300).done();
        assert_eq!(Command::parse(&bytes), Err(libc::EINVAL));
    }
}

#[test]
fn options_are_not_read() {
    let read = command(number::GET_OPTION);
    assert_eq!(Command::parse(&read), Err(libc::ENOSYS));
}

#[test]
fn groups_are_joined_as_member_or_as_sender() {
    for (flags, is_known) in [(0u16, true), (1, true), (2, false)] {
        let mut join = command(number::JOIN_MCAST);
        join[HEADER + 22..HEADER + 24].copy_from_slice(&flags.to_ne_bytes());
        assert_eq!(Command::parse(&join).is_ok(), is_known, "{flags}");
    }
}

#[test]
fn addresses_longer_than_any_are_refused() {
    for (number, at) in [
        (number::BIND, 4),
        (number::RESOLVE_ADDR, 8),
        (number::RESOLVE_ADDR, 10),
        (number::JOIN_MCAST, 20),
    ] {
        let mut bytes = command(number);
        bytes[HEADER + at..HEADER + at + 2].copy_from_slice(&129u16.to_ne_bytes());
        assert_eq!(Command::parse(&bytes), Err(libc::EINVAL));
    }
}

#[test]
fn bytes_of_any_kind_are_no_crash() {
    let mut state = 1u32;
    for _ in 0..100_000 {
        let mut next = || {
            state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            (state >> 16) as u8
        };
        let mut bytes: Vec<u8> = (0..320).map(|_| next()).collect();
        let number = next() as usize % (number::LENGTHS.len() + 1);
        bytes[..4].copy_from_slice(&(number as u32).to_ne_bytes());
        let len = u16::from(next()) * 2;
        bytes[4..6].copy_from_slice(&len.to_ne_bytes());
        let _ = Command::parse(&bytes);
    }
}

#[test]
fn parameters_come_back() {
    let param = ConnParam {
        qp_num: 5,
        qkey: 6,
        private: Private::new(b"data"),
        srq: 1,
        responder_resources: 2,
        initiator_depth: 3,
        flow_control: 4,
        retry_count: 5,
        rnr_retry_count: 6,
    };
    let bytes = Writer::default().conn_param(&param).done();
    assert_eq!(bytes.len(), CONN_PARAM);
    assert_eq!(Fields(&bytes).conn_param(0), Some(param));
}
