//! The queue pair state machine, the same for every NIC.
//!
//! ```text
//!  RESET -> INIT -> RTR -> RTS <-> SQD
//!                           |  ^
//!                 (UC, UD)  v  |
//!                          SQE -
//!  any -> ERR, any -> RESET
//! ```
//! Source: InfiniBand specification, volume 1, section 10.3 and table 92 (attributes a transition
//! needs and allows), as `ibv_modify_qp(3)` gives them.

use crate::attr::{Access, QpAttr, QpState, Transport};
use crate::error::{PostReason, VerbsError};

bitflags::bitflags! {
    /// Which attributes are set; also what a transition needs or allows.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Set: u32 {
        const ACCESS = 1;
        const PKEY = 1 << 1;
        const PORT = 1 << 2;
        const QKEY = 1 << 3;
        const PATH = 1 << 4;
        const DEST_QPN = 1 << 5;
        const MTU = 1 << 6;
        const RQ_PSN = 1 << 7;
        const SQ_PSN = 1 << 8;
        const RD_ATOMIC = 1 << 9;
        const DEST_RD_ATOMIC = 1 << 10;
        const RNR_TIMER = 1 << 11;
        const TIMEOUT = 1 << 12;
        const RETRY = 1 << 13;
        const RNR_RETRY = 1 << 14;
    }
}

impl Set {
    fn of(attr: &QpAttr) -> Set {
        let mut set = Set::empty();
        set.set(Set::ACCESS, attr.access.is_some());
        set.set(Set::PKEY, attr.pkey_index.is_some());
        set.set(Set::PORT, attr.port.is_some());
        set.set(Set::QKEY, attr.qkey.is_some());
        set.set(Set::PATH, attr.path.is_some());
        set.set(Set::DEST_QPN, attr.dest_qpn.is_some());
        set.set(Set::MTU, attr.path_mtu.is_some());
        set.set(Set::RQ_PSN, attr.rq_psn.is_some());
        set.set(Set::SQ_PSN, attr.sq_psn.is_some());
        set.set(Set::RD_ATOMIC, attr.rd_atomic_max.is_some());
        set.set(Set::DEST_RD_ATOMIC, attr.dest_rd_atomic_max.is_some());
        set.set(Set::RNR_TIMER, attr.min_rnr_timer.is_some());
        set.set(Set::TIMEOUT, attr.timeout.is_some());
        set.set(Set::RETRY, attr.retry_count.is_some());
        set.set(Set::RNR_RETRY, attr.rnr_retry.is_some());
        set
    }

    fn first_name(self) -> &'static str {
        const NAMES: [&str; 15] = [
            "access",
            "pkey_index",
            "port",
            "qkey",
            "path",
            "dest_qpn",
            "path_mtu",
            "rq_psn",
            "sq_psn",
            "rd_atomic_max",
            "dest_rd_atomic_max",
            "min_rnr_timer",
            "timeout",
            "retry_count",
            "rnr_retry",
        ];
        NAMES[self.bits().trailing_zeros() as usize]
    }
}

/// What a transition needs and what it allows besides; `None` where there is no such transition.
fn transition(transport: Transport, from: QpState, to: QpState) -> Option<(Set, Set)> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    use Transport::{Rc, Uc, Ud};
    let none = Set::empty();
    let adjust = match transport {
        Rc => Set::ACCESS | Set::RNR_TIMER,
        Uc => Set::ACCESS,
        Ud => Set::QKEY,
    };
    let initial = Set::PKEY
        | Set::PORT
        | if transport == Ud {
            Set::QKEY
        } else {
            Set::ACCESS
        };
    Some(match (from, to) {
        (_, Reset | Err) => (none, none),
        (Reset, Init) => (initial, none),
        (Init, Init) => (none, initial),
        (Init, Rtr) => {
            let connected = Set::PATH | Set::DEST_QPN | Set::MTU | Set::RQ_PSN;
            let needed = match transport {
                Rc => connected | Set::DEST_RD_ATOMIC | Set::RNR_TIMER,
                Uc => connected,
                Ud => none,
            };
            (
                needed,
                Set::PKEY
                    | if transport == Ud {
                        Set::QKEY
                    } else {
                        Set::ACCESS
                    },
            )
        }
        (Rtr, Rts) => {
            let reliable = Set::TIMEOUT | Set::RETRY | Set::RNR_RETRY | Set::RD_ATOMIC;
            (
                Set::SQ_PSN | if transport == Rc { reliable } else { none },
                adjust,
            )
        }
        (Rts, Rts) | (Sqd, Rts) => (none, adjust),
        (Rts, Sqd) => (none, none),
        (Sqd, Sqd) => {
            let path = Set::PATH | Set::TIMEOUT | Set::RETRY | Set::RNR_RETRY;
            (
                none,
                adjust | Set::PKEY | if transport == Rc { path } else { none },
            )
        }
        (Sqe, Rts) if transport != Rc => (none, adjust),
        _ => return None,
    })
}

/// A queue pair's state and everything that was set on the way to it.
#[derive(Clone, Debug)]
pub struct QpMachine {
    transport: Transport,
    state: QpState,
    attr: QpAttr,
}

impl QpMachine {
    /// A machine in RESET.
    pub fn new(transport: Transport) -> Self {
        QpMachine {
            transport,
            state: QpState::Reset,
            attr: QpAttr::default(),
        }
    }

    /// The state now.
    #[inline]
    pub fn state(&self) -> QpState {
        self.state
    }

    /// The transport.
    #[inline]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Everything that was set so far; `state` is the state now.
    pub fn attr(&self) -> QpAttr {
        QpAttr {
            state: Some(self.state),
            ..self.attr
        }
    }

    /// What peers may do through this queue pair. A reliable connection that is to answer no READs
    /// and atomics at a time gives no right to them.
    pub fn access(&self) -> Access {
        let access = self.attr.access.unwrap_or_default();
        match (self.transport, self.attr.dest_rd_atomic_max) {
            (Transport::Rc, Some(0)) => access - (Access::REMOTE_READ | Access::REMOTE_ATOMIC),
            _ => access,
        }
    }

    /// Checks a change without making it, and returns the state it leads to.
    ///
    /// # Errors
    /// `Transition` where there is none, `MissingAttribute` and `UnexpectedAttribute` by name,
    /// `Invalid` for values outside their range.
    pub fn check(&self, attr: &QpAttr) -> Result<QpState, VerbsError> {
        let (from, to) = (self.state, attr.state.unwrap_or(self.state));
        let Some((needed, allowed)) = transition(self.transport, from, to) else {
            return Err(VerbsError::Transition {
                transport: self.transport,
                from,
                to,
            });
        };
        let set = Set::of(attr);
        let missing = needed - set;
        if !missing.is_empty() {
            return Err(VerbsError::MissingAttribute {
                from,
                to,
                attribute: missing.first_name(),
            });
        }
        let unexpected = set - (needed | allowed);
        if !unexpected.is_empty() {
            let attribute = unexpected.first_name();
            return Err(VerbsError::UnexpectedAttribute {
                from,
                to,
                attribute,
            });
        }
        check_ranges(attr)?;
        Ok(to)
    }

    /// Makes a change that [`QpMachine::check`] accepts.
    ///
    /// # Errors
    /// As `check`; nothing is changed then.
    pub fn modify(&mut self, attr: &QpAttr) -> Result<QpState, VerbsError> {
        let to = self.check(attr)?;
        self.state = to;
        if to == QpState::Reset {
            self.attr = QpAttr::default();
            return Ok(to);
        }
        let old = &mut self.attr;
        old.access = attr.access.or(old.access);
        old.pkey_index = attr.pkey_index.or(old.pkey_index);
        old.port = attr.port.or(old.port);
        old.qkey = attr.qkey.or(old.qkey);
        old.path = attr.path.or(old.path);
        old.dest_qpn = attr.dest_qpn.or(old.dest_qpn);
        old.path_mtu = attr.path_mtu.or(old.path_mtu);
        old.rq_psn = attr.rq_psn.or(old.rq_psn);
        old.sq_psn = attr.sq_psn.or(old.sq_psn);
        old.rd_atomic_max = attr.rd_atomic_max.or(old.rd_atomic_max);
        old.dest_rd_atomic_max = attr.dest_rd_atomic_max.or(old.dest_rd_atomic_max);
        old.min_rnr_timer = attr.min_rnr_timer.or(old.min_rnr_timer);
        old.timeout = attr.timeout.or(old.timeout);
        old.retry_count = attr.retry_count.or(old.retry_count);
        old.rnr_retry = attr.rnr_retry.or(old.rnr_retry);
        Ok(to)
    }

    /// What the NIC does on its own when a request fails: a reliable connection goes to ERR, the
    /// unreliable transports to SQE when sending failed and to ERR when receiving failed.
    pub fn fail(&mut self, sending: bool) {
        self.state = match self.transport {
            Transport::Uc | Transport::Ud if sending && self.state != QpState::Err => QpState::Sqe,
            _ => QpState::Err,
        };
    }

    /// Whether send work requests are taken in this state. In SQE and ERR they are taken and
    /// flushed, in SQD taken and kept.
    #[inline]
    pub fn takes_sends(&self) -> Result<(), PostReason> {
        match self.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => Ok(()),
            state => Err(PostReason::State(state)),
        }
    }

    /// Whether RECVs are taken in this state. In ERR they are taken and flushed.
    #[inline]
    pub fn takes_recvs(&self) -> Result<(), PostReason> {
        match self.state {
            QpState::Reset => Err(PostReason::State(QpState::Reset)),
            _ => Ok(()),
        }
    }

    /// Whether messages from the peer are taken in this state.
    #[inline]
    pub fn receives(&self) -> bool {
        matches!(
            self.state,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }
}

fn check_ranges(attr: &QpAttr) -> Result<(), VerbsError> {
    let small = |what, value: Option<u8>, max: u8| match value {
        Some(value) if value > max => Err(VerbsError::Limit {
            what,
            value: u64::from(value),
            max: u64::from(max),
        }),
        _ => Ok(()),
    };
    small("min_rnr_timer", attr.min_rnr_timer, 31)?;
    small("timeout", attr.timeout, 31)?;
    small("retry_count", attr.retry_count, 7)?;
    small("rnr_retry", attr.rnr_retry, 7)?;
    let wide = |what, value: Option<u32>| match value {
        Some(value) if value > 0x00ff_ffff => Err(VerbsError::Limit {
            what,
            value: u64::from(value),
            max: 0x00ff_ffff,
        }),
        _ => Ok(()),
    };
    wide("dest_qpn", attr.dest_qpn.map(|n| n.0))?;
    wide("rq_psn", attr.rq_psn.map(|n| n.0))?;
    wide("sq_psn", attr.sq_psn.map(|n| n.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{AhAttr, Mtu};
    use crate::names::{Gid, Psn, Qkey, QpNum};

    const STATES: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];
    const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::Uc, Transport::Ud];

    /// An attribute set with all that a transition needs.
    fn needed(transport: Transport, from: QpState, to: QpState) -> QpAttr {
        let set = transition(transport, from, to).expect("a transition").0;
        let has = |flag| set.contains(flag);
        QpAttr {
            state: Some(to),
            access: has(Set::ACCESS).then_some(Access::EVERYTHING),
            pkey_index: has(Set::PKEY).then_some(0),
            port: has(Set::PORT).then_some(1),
            qkey: has(Set::QKEY).then_some(Qkey(1)),
            path: has(Set::PATH).then_some(AhAttr::to(Gid::default())),
            dest_qpn: has(Set::DEST_QPN).then_some(QpNum(1)),
            path_mtu: has(Set::MTU).then_some(Mtu::B4096),
            rq_psn: has(Set::RQ_PSN).then_some(Psn(1)),
            sq_psn: has(Set::SQ_PSN).then_some(Psn(1)),
            rd_atomic_max: has(Set::RD_ATOMIC).then_some(1),
            dest_rd_atomic_max: has(Set::DEST_RD_ATOMIC).then_some(1),
            min_rnr_timer: has(Set::RNR_TIMER).then_some(1),
            timeout: has(Set::TIMEOUT).then_some(1),
            retry_count: has(Set::RETRY).then_some(1),
            rnr_retry: has(Set::RNR_RETRY).then_some(1),
        }
    }

    fn at(transport: Transport, state: QpState) -> QpMachine {
        QpMachine {
            transport,
            state,
            attr: QpAttr::default(),
        }
    }

    #[test]
    fn only_the_transitions_of_the_specification_exist() {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        for transport in TRANSPORTS {
            for from in STATES {
                for to in STATES {
                    let mut expected = matches!(to, Reset | Err)
                        || matches!(
                            (from, to),
                            (Reset, Init)
                                | (Init, Init | Rtr)
                                | (Rtr, Rts)
                                | (Rts, Rts | Sqd)
                                | (Sqd, Rts | Sqd)
                        );
                    expected |= transport != Transport::Rc && (from, to) == (Sqe, Rts);
                    let made = transition(transport, from, to).is_some();
                    assert_eq!(made, expected, "{transport:?} {from:?} -> {to:?}");
                }
            }
        }
    }

    #[test]
    fn every_needed_attribute_is_asked_for_by_name() {
        for transport in TRANSPORTS {
            for (from, to) in STATES.iter().flat_map(|f| STATES.iter().map(|t| (*f, *t))) {
                let Some((set, _)) = transition(transport, from, to) else {
                    continue;
                };
                let full = needed(transport, from, to);
                assert_eq!(at(transport, from).modify(&full).expect("accepted"), to);
                for flag in set.iter() {
                    let mut lacking = full;
                    match flag {
                        Set::ACCESS => lacking.access = None,
                        Set::PKEY => lacking.pkey_index = None,
                        Set::PORT => lacking.port = None,
                        Set::QKEY => lacking.qkey = None,
                        Set::PATH => lacking.path = None,
                        Set::DEST_QPN => lacking.dest_qpn = None,
                        Set::MTU => lacking.path_mtu = None,
                        Set::RQ_PSN => lacking.rq_psn = None,
                        Set::SQ_PSN => lacking.sq_psn = None,
                        Set::RD_ATOMIC => lacking.rd_atomic_max = None,
                        Set::DEST_RD_ATOMIC => lacking.dest_rd_atomic_max = None,
                        Set::RNR_TIMER => lacking.min_rnr_timer = None,
                        Set::TIMEOUT => lacking.timeout = None,
                        Set::RETRY => lacking.retry_count = None,
                        _ => lacking.rnr_retry = None,
                    }
                    match at(transport, from).modify(&lacking) {
                        Err(VerbsError::MissingAttribute { attribute, .. }) => {
                            assert_eq!(attribute, flag.first_name());
                        }
                        other => panic!("{transport:?} {from:?} -> {to:?}: {other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_transition_does_not_take_is_refused() {
        let attr = QpAttr {
            state: Some(QpState::Err),
            qkey: Some(Qkey(1)),
            ..QpAttr::default()
        };
        let refused = at(Transport::Ud, QpState::Rts).modify(&attr);
        assert!(matches!(
            refused,
            Err(VerbsError::UnexpectedAttribute {
                attribute: "qkey",
                ..
            })
        ));
        let mut attr = needed(Transport::Rc, QpState::Rtr, QpState::Rts);
        attr.rnr_retry = Some(8);
        let refused = at(Transport::Rc, QpState::Rtr).modify(&attr);
        assert!(matches!(
            refused,
            Err(VerbsError::Limit {
                what: "rnr_retry",
                value: 8,
                max: 7
            })
        ));
    }

    #[test]
    fn a_refused_change_changes_nothing_and_reset_forgets() {
        let mut machine = QpMachine::new(Transport::Rc);
        machine
            .modify(&needed(Transport::Rc, QpState::Reset, QpState::Init))
            .expect("to INIT");
        let before = machine.attr();
        assert!(machine.modify(&QpAttr::to(QpState::Rtr)).is_err());
        assert_eq!(machine.attr(), before);
        machine
            .modify(&QpAttr::to(QpState::Reset))
            .expect("to RESET");
        assert_eq!(machine.attr(), QpAttr::to(QpState::Reset));
    }

    #[test]
    fn failing_goes_where_the_transport_says() {
        let after = |transport, sending| {
            let mut machine = at(transport, QpState::Rts);
            machine.fail(sending);
            machine.state()
        };
        assert_eq!(after(Transport::Rc, true), QpState::Err);
        assert_eq!(after(Transport::Uc, true), QpState::Sqe);
        assert_eq!(after(Transport::Ud, true), QpState::Sqe);
        assert_eq!(after(Transport::Ud, false), QpState::Err);
    }
}
