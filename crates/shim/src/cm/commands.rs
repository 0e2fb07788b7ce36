//! Carrying out a command. Errors are those of the kernel.

use std::os::fd::{AsFd, RawFd};

use super::abi::{Answer, Command, ConnParam, Private, option};
use super::addresses;
use super::events::EVENT_LEN_MIN;
use super::faults::{self, Kind};
use super::ids::{Id, QPT_RC, QPT_UD, State, port_space};
use super::manager::{self, Manager, free_number};
use super::names::Place;
use super::peers::{ANSWER, DatagramReason, Reason, private_len, random_psn, refusal, reply};
use super::service::Token;
use super::wire::Message;
use super::{attributes, route, user};
use crate::abi::errno::Errno;

/// Requests that a listener takes before the program has seen any, at most; as many where it does not say.
const BACKLOG_MAX: u32 = 1024;
/// `IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED`, which a program may reject with besides a reason of its own.
const VENDOR_OPTION: u8 = 35;
/// `IBV_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;
/// No option is longer that anybody knows of.
const OPTION_LEN_MAX: u32 = 64 << 10;

/// Whether what was written asks for an event, for which its writer waits first: see [`carry_out`].
pub(super) fn takes_event(written: &[u8]) -> bool {
    matches!(Command::parse(written), Ok(Command::GetEvent { .. }))
}

/// Carries out what was written to an event channel.
///
/// # Errors
/// Those of the kernel; `EAGAIN` where there is no event after all.
///
/// # Safety
/// The program's addresses in it are good for as long as their lengths say, or are nothing at all.
pub(super) unsafe fn carry_out(fd: RawFd, written: &[u8]) -> Result<(), Errno> {
    let command = Command::parse(written)?;
    let mut manager = manager::lock();
    // SAFETY: the caller's promise.
    unsafe { at_once(&mut manager, fd, command) }
}

/// Answers, as far as there is room.
///
/// # Safety
/// As for [`carry_out`].
unsafe fn answer(to: Answer, bytes: &[u8], least: usize) -> Result<(), Errno> {
    if to.room < least {
        return Err(libc::ENOSPC);
    }
    // SAFETY: the caller's promise.
    unsafe { user::write(to.at, &bytes[..bytes.len().min(to.room)]) }
}

/// Gives the program its next event. Who asks has taken one of the channel's counts for it.
///
/// # Safety
/// As for [`carry_out`].
unsafe fn next_event(manager: &mut Manager, fd: RawFd, to: Answer) -> Result<(), Errno> {
    if to.room < EVENT_LEN_MIN {
        return Err(libc::ENOSPC);
    }
    let channel = manager.channels.get_mut(&fd).ok_or(libc::ENODEV)?;
    let event = channel.waiting.pop_front().ok_or(libc::EAGAIN)?;
    if let Some(group) = event.group.and_then(|group| manager.groups.get_mut(&group)) {
        group.events_reported += 1;
    }
    if let Some(id) = manager.ids.get_mut(&event.charged) {
        id.events_reported += 1;
        if event.charged != event.id {
            id.backlog += 1;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { answer(to, &event.emit(), EVENT_LEN_MIN) }
}

/// # Safety
/// As for [`carry_out`].
unsafe fn at_once(manager: &mut Manager, fd: RawFd, command: Command<'_>) -> Result<(), Errno> {
    let address = |bytes| addresses::parse(bytes).ok_or(libc::EINVAL);
    match command {
        Command::CreateId {
            answer: to,
            uid,
            port_space,
            qp_type,
        } => {
            let mut id = Id::new(fd, port_space, kind(port_space, qp_type)?);
            id.uid = uid;
            let number = free_number(&manager.ids);
            // SAFETY: the caller's promise.
            unsafe { answer(to, &number.to_ne_bytes(), 4)? };
            manager.ids.insert(number, id);
            Ok(())
        }
        Command::DestroyId { answer: to, id } => {
            manager.id(fd, id)?;
            if to.room < 4 {
                return Err(libc::ENOSPC);
            }
            let events = manager.destroy(id);
            // SAFETY: the caller's promise.
            unsafe { answer(to, &events.to_ne_bytes(), 4) }
        }
        Command::Bind { id, address: at } => {
            manager.id(fd, id)?;
            manager.bind(id, address(at)?)
        }
        Command::ResolveAddr { id, from, to } => {
            manager.id(fd, id)?;
            manager.resolve_addr(id, from.map(address).transpose()?, address(to)?)
        }
        Command::ResolveRoute { id } => {
            manager.id(fd, id)?;
            manager.resolve_route(id)
        }
        Command::QueryRoute { answer: to, id } => {
            let bytes = route::query_route(manager.id(fd, id)?);
            // SAFETY: the caller's promise. Older programs know of no index.
            unsafe { answer(to, &bytes, 200) }
        }
        Command::Query {
            answer: to,
            id,
            option,
        } => {
            let bytes = route::query(manager.id(fd, id)?, option)?;
            // SAFETY: as above.
            unsafe { answer(to, &bytes, bytes.len().min(272)) }
        }
        Command::Connect { id, param } => connect(manager, fd, id, param),
        Command::Listen { id, backlog } => listen(manager, fd, id, backlog),
        Command::Accept { id, uid, param } => accept(manager, fd, id, uid, param),
        Command::Reject {
            id,
            reason,
            private,
        } => reject(manager, fd, id, reason, private),
        Command::Disconnect { id } => {
            if manager.id(fd, id)?.peer.is_none() {
                return Err(libc::EINVAL);
            }
            manager.disconnect(id);
            Ok(())
        }
        Command::InitQpAttr {
            answer: to,
            id,
            state,
        } => {
            let bytes = attributes::of(manager.id(fd, id)?, state)?;
            // SAFETY: the caller's promise.
            unsafe { answer(to, &bytes, bytes.len()) }
        }
        Command::SetOption {
            id,
            level,
            name,
            at,
            len,
        } => {
            manager.id(fd, id)?;
            if len > OPTION_LEN_MAX {
                return Err(libc::EINVAL);
            }
            // SAFETY: the caller's promise.
            let value = unsafe { user::read(at, len as usize)? };
            set_option(manager, id, (level, name), &value)
        }
        Command::Notify { id, event } => {
            // The queue pair has heard from its peer before the connection manager has.
            let is_early = manager.id(fd, id)?.state == State::ReplySent && event == COMM_EST;
            if is_early {
                manager.established(id);
            }
            Ok(())
        }
        Command::JoinGroup {
            answer: to,
            uid,
            id,
            address,
        } => {
            manager.id(fd, id)?;
            if to.room < 4 {
                return Err(libc::ENOSPC);
            }
            let group = manager.join(id, uid, address)?;
            // SAFETY: the caller's promise.
            let told = unsafe { answer(to, &group.to_ne_bytes(), 4) };
            if told.is_err() {
                // The program cannot know it.
                manager.leave(fd, group)?;
            }
            told
        }
        Command::LeaveGroup { answer: to, group } => {
            if to.room < 4 {
                return Err(libc::ENOSPC);
            }
            let events = manager.leave(fd, group)?;
            // SAFETY: the caller's promise.
            unsafe { answer(to, &events.to_ne_bytes(), 4) }
        }
        Command::MigrateId {
            answer: to,
            id,
            fd: from,
        } => {
            if to.room < 4 {
                return Err(libc::ENOSPC);
            }
            let events = migrate(manager, from, fd, id)?;
            // SAFETY: the caller's promise.
            unsafe { answer(to, &events.to_ne_bytes(), 4) }
        }
        // SAFETY: the caller's promise.
        Command::GetEvent { answer: to } => unsafe { next_event(manager, fd, to) },
    }
}

/// A port space's queue pairs.
fn kind(port_space: u16, qp_type: u8) -> Result<u8, Errno> {
    match port_space {
        port_space::TCP => Ok(QPT_RC),
        port_space::UDP | port_space::IPOIB => Ok(QPT_UD),
        port_space::IB => Ok(qp_type),
        _ => Err(libc::EINVAL),
    }
}

fn connect(manager: &mut Manager, fd: RawFd, number: u32, param: ConnParam) -> Result<(), Errno> {
    let id = manager.id(fd, number)?;
    let max = match id.is_datagram() {
        true => private_len::DATAGRAM_REQUEST,
        false => private_len::REQUEST,
    };
    if id.state != State::RouteResolved || param.private.bytes().len() > max {
        return Err(libc::EINVAL);
    }
    id.ours = ConnParam {
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        ..param
    };
    id.psn = random_psn();
    let is_datagram = id.is_datagram();
    if faults::strikes(Kind::Timeout) {
        manager.unreachable(number, -libc::ETIMEDOUT);
        return Ok(());
    }
    if faults::strikes(Kind::Reject) {
        let why = (refusal(is_datagram), Private::new(&[]));
        manager.refused(number, Some(why));
        return Ok(());
    }
    manager.call(number)
}

fn listen(manager: &mut Manager, fd: RawFd, number: u32, backlog: u32) -> Result<(), Errno> {
    let id = manager.id(fd, number)?;
    if id.state == State::Idle {
        let any = std::net::Ipv4Addr::UNSPECIFIED;
        manager.bind(number, (any, 0).into())?;
    }
    manager.service()?;
    let id = manager.id(fd, number)?;
    let (State::Bound, Some(address)) = (id.state, id.from) else {
        return Err(libc::EINVAL);
    };
    if id.bound.is_empty() {
        // Somebody had the port when it was bound; now it has to be free.
        let place = Place {
            device: addresses::own_gid()?,
            port_space: id.port_space,
        };
        id.bound = place.bind_to(address, id.sharing)?.sockets;
    }
    for socket in &id.bound {
        rustix::net::listen(socket, BACKLOG_MAX as i32).map_err(|error| error.raw_os_error())?;
    }
    id.backlog = match backlog {
        1..BACKLOG_MAX => backlog,
        _ => BACKLOG_MAX,
    };
    id.state = State::Listening;
    let service = manager.started()?;
    for socket in &manager.ids[&number].bound {
        service.watch(socket.as_fd(), Token::Id(number))?;
    }
    Ok(())
}

fn accept(
    manager: &mut Manager,
    fd: RawFd,
    number: u32,
    uid: u64,
    param: Option<ConnParam>,
) -> Result<(), Errno> {
    let id = manager.id(fd, number)?;
    match (id.state, param) {
        (State::RequestReceived, Some(param)) => {
            let gid = id.device.ok_or(libc::EINVAL)?;
            reply(id, param, gid)?;
            id.uid = uid;
            if id.is_datagram() {
                manager.over(number, State::Over);
            } else {
                id.state = State::ReplySent;
                manager.set_deadline(Token::Id(number), Some(ANSWER));
            }
            Ok(())
        }
        (State::ReplyReceived, None) => {
            id.tell(&Message::Ready);
            id.state = State::Established;
            Ok(())
        }
        _ => Err(libc::EINVAL),
    }
}

fn reject(
    manager: &mut Manager,
    fd: RawFd,
    number: u32,
    reason: u8,
    private: Private,
) -> Result<(), Errno> {
    let id = manager.id(fd, number)?;
    let reason = match (id.is_datagram(), reason) {
        (true, _) => DatagramReason::Rejected as u32,
        (false, 0) => Reason::Consumer as u32,
        (false, reason @ VENDOR_OPTION) => reason.into(),
        (false, reason) if u32::from(reason) == Reason::Consumer as u32 => reason.into(),
        _ => return Err(libc::EINVAL),
    };
    let is_open = matches!(
        id.state,
        State::RequestReceived | State::ReplyReceived | State::ReplySent
    );
    if !is_open || private.bytes().len() > private_len::REJECT {
        return Err(libc::EINVAL);
    }
    id.tell(&Message::Reject { reason, private });
    manager.over(number, State::Over);
    Ok(())
}

fn set_option(
    manager: &mut Manager,
    number: u32,
    option: (u32, u32),
    value: &[u8],
) -> Result<(), Errno> {
    let id = manager.ids.get_mut(&number).ok_or(libc::ENOENT)?;
    let byte = || match value {
        [value] => Ok(*value),
        _ => Err(libc::EINVAL),
    };
    let flag = || {
        let bytes: Result<[u8; 4], _> = value.try_into();
        let number = bytes.map(i32::from_ne_bytes);
        number.map(|number| number != 0).map_err(|_| libc::EINVAL)
    };
    match option {
        (option::LEVEL_ID, option::TOS) => id.traffic_class = byte()?,
        (option::LEVEL_ID, option::REUSEADDR) => id.sharing.reuse = flag()?,
        (option::LEVEL_ID, option::AFONLY) => id.sharing.ipv6_only = flag()?,
        (option::LEVEL_ID, option::ACK_TIMEOUT) => {
            id.ack_timeout = Some(byte()?).filter(|&timeout| timeout != 0);
        }
        // The only path there is; who sets it has a route.
        (option::LEVEL_IB, option::IB_PATH) => return manager.resolve_route(number),
        _ => return Err(libc::ENOSYS),
    }
    Ok(())
}

/// Moves an identifier to another channel of the program, with the events that wait.
fn migrate(manager: &mut Manager, from: RawFd, to: RawFd, number: u32) -> Result<u32, Errno> {
    let is_on = |event: &super::events::Event| event.charged == number || event.id == number;
    let events_reported = manager.id(from, number)?.events_reported;
    let old = manager.channels.get_mut(&from).ok_or(libc::EBADF)?;
    let mut waiting = old.take(is_on);
    // They need not be late any more.
    waiting.extend(manager.take_late(is_on));
    for event in waiting {
        if let Some(id) = manager.ids.get_mut(&event.id) {
            id.channel = to;
        }
        if let Some(new) = manager.channels.get_mut(&to) {
            new.push(event);
        }
    }
    manager.ids.get_mut(&number).ok_or(libc::ENOENT)?.channel = to;
    Ok(events_reported)
}
