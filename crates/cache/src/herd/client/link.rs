//! A connection: the client's objects for all cores, and the handshake that makes them.

use verbs::typed::{
    CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Uc, Ud,
};
use verbs::wr::GRH_LEN;
use verbs::{Access, CqError, Gid, LentRecvs, Polled, Qkey, QpCaps, Wc, WcFlags, WcStatus};

use super::dial::{ConnectError, Control, converse};
use super::source::Source;
use super::window::{Window, WindowParts};
use super::{ClientConfig, ClientStats, Outcome};
use crate::herd::memory::Memory;
use crate::herd::slots::Geometry;
use crate::herd::wire::handshake::{
    Accept, CORES_MAX, Connect, ConnectCore, Message, ServerInfo, VERSION,
};
use crate::mica::VALUE_BYTES_MAX;
use crate::route::Route;

/// Completions taken at once.
const WC_BATCH: usize = 32;
/// Bytes of an answer, as room for so many completions' is counted.
const ANSWER_LEN_USUAL: usize = 256;

/// A connection to all cores of a server.
#[derive(Debug)]
pub(super) struct Link<S> {
    pub(super) info: ServerInfo,
    pub(super) route: Route,
    pub(super) windows: Vec<Window>,
    pub(super) stream: S,
    recv_cq: CompletionQueue,
    send_cq: CompletionQueue,
    /// The answers polled last, lent by the NIC, which owns the RECVs.
    answers: Polled,
    broken: bool,
}

struct HalfWindow {
    uc: QueuePair<Uc>,
    ud: QueuePair<Ud>,
    send_region: MemoryRegion,
}

impl<S: Control> Link<S> {
    /// Shakes hands over `stream` and connects to every core.
    pub(super) fn connect(
        pd: &ProtectionDomain,
        config: &ClientConfig,
        mut stream: S,
        qkey: Qkey,
        now_ns: u64,
    ) -> Result<Self, ConnectError> {
        let context = pd.context();
        let hello = Message::Hello(VERSION, VERSION);
        let Message::Info(info) = converse(&mut stream, &hello)? else {
            return Err(ConnectError::Nonsense("answer to HELLO"));
        };
        let (window, geometry) = check_info(&info, config)?;
        let cores = info.cores as usize;
        let recvs_per_core = 2 * window + 4;
        let recv_cq = context.create_cq((recvs_per_core * cores) as u32)?;
        let send_wr_max = (4 * window as u32).max(64);
        let send_cq = context.create_cq(send_wr_max * cores as u32)?;
        let inline_max = (context.device().inline_max as usize).min(256);

        let answer_len_max = info.answer_len_max as usize;
        let caps = QpCaps {
            send_wr_max,
            recv_wr_max: 1,
            send_sge_max: 1,
            recv_sge_max: 1,
            inline_max: inline_max as u32,
        };
        let mut halves = Vec::with_capacity(cores);
        for _ in 0..cores {
            let options =
                |caps| QpOptions::between(&send_cq.handle(), &recv_cq.handle()).caps(caps);
            let lent_recvs = Some(LentRecvs {
                count: recvs_per_core as u32,
                len: info.answer_len_max,
            });
            let mut ud = pd.create_qp::<Ud>(&QpOptions {
                lent_recvs,
                ..options(QpCaps {
                    send_wr_max: 1,
                    ..caps
                })
            })?;
            ud.activate(qkey)?;
            halves.push(HalfWindow {
                uc: pd.create_qp::<Uc>(&options(caps))?,
                ud,
                send_region: pd.allocate(window * geometry.slot_len, Access::empty())?,
            });
        }

        let accept = ask(&mut stream, &info, window, context.gid()?, qkey, &halves)?;
        check_accept(&accept, window, geometry, cores)?;
        let mtu = context.port(1)?.mtu;
        let mut windows = Vec::with_capacity(cores);
        for (core, (mut half, peer)) in halves.into_iter().zip(&accept.cores).enumerate() {
            let options = ConnectOptions {
                access: Access::empty(),
                mtu,
                ..ConnectOptions::default()
            };
            half.uc.connect(&peer.uc, &options)?;
            let parts = WindowParts {
                number: core as u16,
                uc: half.uc,
                ud: half.ud,
                server_ud: peer.ud_qpn,
                server: Source::new(peer.uc.gid, context.gid()?),
                chunk: peer.chunk,
                first_id: accept.first_id,
                geometry,
                inline_max,
                send_wr_max,
                send_memory: Memory::new(half.send_region),
                answer_len_max,
                // APPEND makes values longer than may be sent.
                value_len_max: (info.value_len_max as usize).max(VALUE_BYTES_MAX),
                idle_ns: info.idle_ns,
            };
            windows.push(Window::new(parts, now_ns));
        }
        let bytes = WC_BATCH * (GRH_LEN + ANSWER_LEN_USUAL);
        let room = bytes.max(GRH_LEN + answer_len_max);
        Ok(Link {
            info,
            route: Route::new(info.route_seed, info.cores),
            windows,
            stream,
            recv_cq,
            send_cq,
            answers: Polled::with_bytes(WC_BATCH, room),
            broken: false,
        })
    }

    /// Takes answers until there are no more, and hands out outcomes; returns how many answers.
    #[inline]
    pub(super) fn take_answers(
        &mut self,
        now_ns: u64,
        stats: &mut ClientStats,
        sink: &mut impl FnMut(u64, Outcome<'_>),
    ) -> usize {
        let mut taken = 0;
        loop {
            let count = match self.recv_cq.poll_into(&mut self.answers) {
                Ok(count) => count,
                Err(CqError::Overrun | _) => {
                    self.broken = true;
                    return taken;
                }
            };
            if count == 0 {
                return taken;
            }
            taken += count;
            let Some(mut window) = self.windows.first_mut() else {
                return taken;
            };
            for (completion, message) in self.answers.iter() {
                // Most come in by the queue pair of the one before.
                if window.answer_qpn != completion.qpn {
                    let to = |window: &&mut Window| window.answer_qpn == completion.qpn;
                    let Some(other) = self.windows.iter_mut().find(to) else {
                        self.broken = true;
                        window = &mut self.windows[0];
                        continue;
                    };
                    window = other;
                }
                match message.and_then(<[u8]>::split_first_chunk::<GRH_LEN>) {
                    Some((header, bytes))
                        if completion.src_qpn == window.server_ud
                            && completion.flags.contains(WcFlags::GRH)
                            && window.server.has_sent(header) =>
                    {
                        window.answer(bytes, now_ns, stats, sink);
                    }
                    _ if may_be_anybodys(completion) => stats.strays += 1,
                    _ => self.broken = true,
                }
            }
            if !self.answers.was_short() {
                return taken;
            }
        }
    }

    /// Takes completions of sends, if any are asked for.
    #[inline]
    pub(super) fn take_completions(&mut self) {
        if !self.windows.iter().any(Window::wants_completions) {
            return;
        }
        let mut completions = [Wc::default(); WC_BATCH];
        loop {
            let count = match self.send_cq.poll(&mut completions) {
                Ok(count) => count,
                Err(_) => {
                    self.broken = true;
                    return;
                }
            };
            for completion in &completions[..count] {
                self.broken |= !completion.is_ok();
                let core = (completion.id >> 48) as usize;
                if let Some(window) = self.windows.get_mut(core) {
                    window.sent(completion.id);
                }
            }
            if count < WC_BATCH {
                return;
            }
        }
    }

    /// Whether a queue has failed, so that the connection must be made again.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}

/// Whether a datagram that is no answer of our server may have come so: anybody can send them, also
/// longer ones than there is room for.
#[cold]
fn may_be_anybodys(completion: &Wc) -> bool {
    matches!(completion.status, WcStatus::Success | WcStatus::LocLenErr)
}

fn check_info(info: &ServerInfo, config: &ClientConfig) -> Result<(usize, Geometry), ConnectError> {
    if info.cores == 0 || info.cores as usize > CORES_MAX {
        return Err(ConnectError::Nonsense("number of cores"));
    }
    if !(256..=4096).contains(&info.answer_len_max) || info.value_len_max > 1 << 30 {
        return Err(ConnectError::Nonsense("limits"));
    }
    let window = config.window.min(info.window_max) as usize;
    let geometry = Geometry::new(info.slot_len as usize, window)
        .filter(|geometry| geometry.slot_len >= 512)
        .ok_or(ConnectError::Nonsense("slot length or window"))?;
    Ok((window, geometry))
}

fn ask(
    stream: &mut impl Control,
    info: &ServerInfo,
    window: usize,
    gid: Gid,
    qkey: Qkey,
    halves: &[HalfWindow],
) -> Result<Accept, ConnectError> {
    let connects = halves.iter().map(|half| {
        Ok(ConnectCore {
            uc: half.uc.endpoint()?,
            ud_qpn: half.ud.num(),
            qkey,
        })
    });
    let connect = Message::Connect(Connect {
        incarnation: info.incarnation,
        window: window as u32,
        gid,
        cores: connects.collect::<Result<_, ConnectError>>()?,
    });
    match converse(stream, &connect)? {
        Message::Accept(accept) => Ok(accept),
        _ => Err(ConnectError::Nonsense("answer to CONNECT")),
    }
}

fn check_accept(
    accept: &Accept,
    window: usize,
    geometry: Geometry,
    cores: usize,
) -> Result<(), ConnectError> {
    let same = accept.window as usize == window
        && accept.slot_len as usize == geometry.slot_len
        && accept.stride as usize == geometry.stride
        && accept.cores.len() == cores
        && accept.first_id != 0;
    if same {
        Ok(())
    } else {
        Err(ConnectError::Nonsense("ACCEPT"))
    }
}
