//! Devices, contexts, their attributes and asynchronous events.
//!
//! | file | what |
//! | --- | --- |
//! | `l2` | the Ethernet address behind a GID |
//! | `refused` | what this device does not have |

mod l2;
mod refused;

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nic_soft::SoftNic;
use rustix::event::epoll;
use rustix::io::Errno as Os;
use verbs::decorate::FaultPlan;
use verbs::nic::{AsyncEvent, Nic};
use verbs::{AtomicScope, GidEntry, GidKind, LinkLayer, Lkey, PortAttr, PortState};

use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, minus_one, pointer, set_errno};
use crate::abi::theirs::Theirs;
use crate::around::{Around, around};
use crate::check;
use crate::context::events;
use crate::context::fork;
use crate::memory::born;
use crate::memory::domain;
use crate::memory::region;
use crate::process::settings::{self, DEVICE};
use crate::queues::cq::Cq;
use crate::queues::post;
use crate::queues::qp::Qp;
use crate::queues::srq::Srq;

/// The one device. A program's pointers to it stay good for ever. Behind it is nothing, where drivers' libraries look for what their
/// own devices have.
#[repr(C)]
struct TheDevice(abi::Device, [u64; 32]);

// SAFETY: nobody changes it, and it points to nothing.
unsafe impl Send for TheDevice {}
// SAFETY: as above.
unsafe impl Sync for TheDevice {}

/// What the port can do: a connection manager, GIDs that are IP addresses.
pub(crate) const PORT_CAPS: u32 = abi::PORT_CM_SUP | abi::PORT_IP_BASED_GIDS;

static THE_DEVICE: OnceLock<TheDevice> = OnceLock::new();

/// A string in a field, cut if need be, with a zero at its end.
fn field<const LEN: usize>(text: &str) -> [c_char; LEN] {
    let mut field = [0; LEN];
    for (to, byte) in field[..LEN - 1].iter_mut().zip(text.bytes()) {
        *to = byte as c_char;
    }
    field
}

fn the_device() -> *mut abi::Device {
    let device = THE_DEVICE.get_or_init(|| {
        let device = abi::Device {
            _ops: [std::ptr::null_mut(); 2],
            node_type: abi::NODE_CA,
            transport_type: abi::TRANSPORT_IB,
            name: field(DEVICE),
            dev_name: field("uverbs0"),
            dev_path: field("/sys/class/infiniband_verbs/uverbs0"),
            ibdev_path: field(&format!("/sys/class/infiniband/{DEVICE}")),
        };
        TheDevice(device, [0; 32])
    });
    (&raw const device.0).cast_mut()
}

/// Says on standard error why something cannot be had.
pub(crate) fn complain(what: &str, why: &dyn std::fmt::Display) {
    // Nothing to do about a stderr that is closed.
    let _ = writeln!(std::io::stderr(), "vervain: {what}: {why}");
}

/// An opened device, as a program holds it.
#[repr(C)]
pub(crate) struct Opened {
    c: Theirs<abi::VerbsContext>,
    pub(crate) nic: Arc<dyn Nic>,
    /// As [`Around`] has it.
    pub(crate) soft: Option<Arc<SoftNic>>,
    /// As [`Around`] has it.
    pub(crate) check: Option<Arc<check::State>>,
    /// As [`Around`] has it.
    pub(crate) faults: Option<FaultPlan>,
    /// Readable when an asynchronous event waits. A program may have its reads block.
    events: OwnedFd,
    objects: Mutex<Objects>,
    /// Of the process that has opened it.
    generation: u32,
    /// What programs call it: the end of `c`.
    context: *mut abi::Context,
}

/// The program's objects by their numbers.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) cqs: HashMap<u32, *mut Cq>,
    pub(crate) qps: HashMap<u32, *mut Qp>,
    pub(crate) srqs: HashMap<u32, *mut Srq>,
    pub(crate) on_demand: HashMap<u32, region::OnDemand>,
}

impl Opened {
    /// # Safety
    /// `context` is one of ours that is not closed meanwhile.
    pub(crate) unsafe fn of<'a>(context: *mut abi::Context) -> &'a Opened {
        // SAFETY: the caller's promise.
        unsafe { &*Opened::around(context) }
    }

    /// What a context is the end of the beginning of.
    ///
    /// # Safety
    /// `context` is one of ours.
    unsafe fn around(context: *mut abi::Context) -> *mut Opened {
        let before = std::mem::offset_of!(abi::VerbsContext, context);
        // SAFETY: ours begin with a `VerbsContext`, of which the program holds the end.
        unsafe { context.byte_sub(before).cast::<Opened>() }
    }

    /// What programs call it.
    pub(crate) fn context(&self) -> *mut abi::Context {
        self.context
    }

    /// Notes that two regions have exchanged their keys.
    pub(crate) fn exchange_on_demand(&self, one: Lkey, other: Lkey) {
        let on_demand = &mut self.objects().on_demand;
        let known = [on_demand.remove(&one.0), on_demand.remove(&other.0)];
        for (key, known) in [other, one].into_iter().zip(known) {
            known.map(|known| on_demand.insert(key.0, known));
        }
    }

    /// Whether a parent of this process has opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    /// For what makes or changes something: a forked child has inherited nothing that it may use.
    ///
    /// # Errors
    /// `ENODEV` there.
    pub(crate) fn checked(&self) -> Result<&Opened, Errno> {
        if self.is_inherited() {
            fork::tell();
            return Err(libc::ENODEV);
        }
        Ok(self)
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A descriptor that is readable when another one is, with flags of its own: whether a program's reads block is up to it.
pub(crate) fn readable_with(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let made = epoll::create(epoll::CreateFlags::CLOEXEC).and_then(|watch| {
        epoll::add(
            &watch,
            fd,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
        Ok(watch)
    });
    made.map_err(Os::raw_os_error)
}

/// Whether a descriptor is readable now.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut watched = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, and no wait.
    unsafe { libc::poll(&raw mut watched, 1, 0) > 0 }
}

/// Whether a read that a signal has interrupted would go on: so it does with `SA_RESTART`, and which signal it was nobody says.
fn restarts() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        // SAFETY: numbers and pointers, which are written.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only asks.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
        let is_handled = known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Takes what `next` has, waiting for it as a read of the descriptor would.
pub(crate) fn wait_for<T>(
    fd: BorrowedFd<'_>,
    mut next: impl FnMut() -> Result<Option<T>, Errno>,
) -> Result<T, Errno> {
    loop {
        if let Some(found) = wait_within(fd, &mut next, -1)? {
            return Ok(found);
        }
    }
}

/// As [`wait_for`], but gives up when the descriptor has not become readable for so many milliseconds; -1 is for ever.
pub(crate) fn wait_within<T>(
    fd: BorrowedFd<'_>,
    mut next: impl FnMut() -> Result<Option<T>, Errno>,
    patience_ms: c_int,
) -> Result<Option<T>, Errno> {
    loop {
        if let Some(found) = next()? {
            return Ok(Some(found));
        }
        let flags = rustix::fs::fcntl_getfl(fd).map_err(Os::raw_os_error)?;
        if flags.contains(rustix::fs::OFlags::NONBLOCK) {
            return Err(libc::EAGAIN);
        }
        let mut watched = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // libc's, at which a thread can be cancelled, as in the read that this stands for.
        // SAFETY: one entry.
        let ready = unsafe { libc::poll(&raw mut watched, 1, patience_ms) };
        if ready == 0 {
            return Ok(None);
        }
        if ready < 0 {
            let error = std::io::Error::last_os_error();
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            if errno != libc::EINTR || !restarts() {
                return Err(errno);
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut abi::Device {
    born::wake(settings::shares_memory().unwrap_or_else(|why| {
        complain("memory is not shared", &why);
        false
    }));
    let list = Box::new([the_device(), std::ptr::null_mut()]);
    if !num_devices.is_null() {
        // SAFETY: the caller's.
        unsafe { *num_devices = 1 };
    }
    Box::into_raw(list).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut abi::Device) {
    // SAFETY: made by `ibv_get_device_list`.
    drop(unsafe { Box::from_raw(list.cast::<[*mut abi::Device; 2]>()) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut abi::Device) -> *const c_char {
    // SAFETY: ours.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut abi::Device) -> c_int {
    // As for devices that the kernel does not number.
    -1
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(_device: *mut abi::Device) -> u64 {
    settings::options().map_or(0, |options| options.gid.low().0.to_be())
}

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: *mut abi::Device) -> *mut abi::Context {
    pointer(open(device))
}

fn open(device: *mut abi::Device) -> Result<*mut abi::Context, Errno> {
    let options = settings::device_options().map_err(|why| {
        complain("cannot open the device", &why);
        libc::EINVAL
    })?;
    let nic = SoftNic::open(&options).map_err(|error| {
        complain("cannot open the device", &error);
        errno_of(&error)
    })?;
    let Around {
        nic,
        soft,
        check,
        faults,
    } = around(nic).map_err(|why| {
        complain("cannot open the device", &why);
        libc::EINVAL
    })?;
    let events = readable_with(nic.async_fd().ok_or(libc::EIO)?)?;
    let context = abi::Context {
        device,
        ops: post::context_ops(),
        cmd_fd: events.as_raw_fd(),
        async_fd: events.as_raw_fd(),
        num_comp_vectors: std::thread::available_parallelism()
            .map_or(1, |cpus| cpus.get() as c_int),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: abi::IS_EXTENDED,
    };
    let room = Box::into_raw(Box::<Opened>::new_uninit()).cast::<Opened>();
    // SAFETY: within what was allocated.
    let place = unsafe { &raw mut (*room.cast::<abi::VerbsContext>()).context };
    let opened = Opened {
        c: Theirs::new(abi::VerbsContext {
            query_port: Some(query_port),
            query_device_ex: Some(query_device_ex),
            create_cq_ex: Some(crate::queues::cq_ex::create_cq_ex),
            create_qp_ex: Some(crate::queues::qp::create_qp_ex),
            get_srq_num: None,
            create_srq_ex: None,
            open_xrcd: None,
            close_xrcd: None,
            private: std::ptr::null_mut(),
            advise_mr: Some(region::advise_mr),
            _before_alloc_parent_domain: [None; 12],
            alloc_parent_domain: Some(domain::alloc_parent_domain),
            dealloc_td: Some(domain::dealloc_td),
            alloc_td: Some(domain::alloc_td),
            _before_query_rt_values: [None; 7],
            query_rt_values: Some(crate::queues::cq_ex::query_rt_values),
            _before_create_qp_ex: [None; 5],
            _unused: 0,
            sz: size_of::<abi::VerbsContext>(),
            context,
        }),
        nic,
        soft,
        check,
        faults,
        events,
        objects: Mutex::default(),
        generation: fork::generation(),
        context: place,
    };
    fork::sleeps_on(opened.events.as_raw_fd());
    // SAFETY: there is room for it.
    unsafe { room.write(opened) };
    fork::opened(place);
    Ok(place)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut abi::Context) -> c_int {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    if opened.is_inherited() {
        return 0;
    }
    fork::closed(context);
    fork::forget(opened.events.as_raw_fd());
    if let Some(state) = &opened.check {
        check::close(state);
    }
    // SAFETY: made by `open`, and of no more use to anybody.
    unsafe { check::give_back(Opened::around(context)) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut abi::Context,
    attr: *mut abi::DeviceAttr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { attr.write(device_attr(Opened::of(context))) };
    0
}

/// So many as a signed number says.
fn count(number: impl Into<u64>) -> c_int {
    c_int::try_from(number.into()).unwrap_or(c_int::MAX)
}

fn device_attr(opened: &Opened) -> abi::DeviceAttr {
    let device = opened.nic.device();
    // SAFETY: numbers, for which zero says that there is none.
    let mut attr: abi::DeviceAttr = unsafe { std::mem::zeroed() };
    attr.fw_ver = field(&device.firmware);
    attr.node_guid = device.guid.0.to_be();
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = device.mr_len_max;
    // Pages of any size.
    attr.page_size_cap = !0xfff;
    // A device of nobody's, as Linux's own software device says.
    attr.vendor_id = if device.vendor == 0 {
        0xff_ffff
    } else {
        device.vendor
    };
    attr.vendor_part_id = device.part;
    attr.hw_ver = device.revision;
    attr.max_qp = count(device.qp_max);
    attr.max_qp_wr = count(device.qp_wr_max);
    attr.max_sge = count(device.sge_max);
    attr.max_sge_rd = attr.max_sge;
    attr.max_cq = count(device.cq_max);
    attr.max_cqe = count(device.cqe_max);
    attr.max_mr = count(device.mr_max);
    attr.max_pd = count(device.pd_max);
    attr.max_qp_rd_atom = count(device.rd_atomic_max);
    attr.max_qp_init_rd_atom = attr.max_qp_rd_atom;
    attr.max_res_rd_atom = attr.max_qp_rd_atom.saturating_mul(attr.max_qp);
    attr.atomic_cap = match device.atomics {
        AtomicScope::None => 0,
        // Whether the processors' own are atomic with them is not what cards say here, nor what programs ask: UCX takes
        // ATOMIC_GLOB for none at all.
        AtomicScope::Device | AtomicScope::Global => 1,
    };
    attr.max_ah = count(device.ah_max);
    attr.max_mcast_grp = count(device.mcast_max);
    attr.max_mcast_qp_attach = count(device.mcast_attach_max);
    attr.max_total_mcast_qp_attach = attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp_attach);
    attr.max_srq = count(device.srq_max);
    attr.max_srq_wr = count(device.srq_wr_max);
    attr.max_srq_sge = count(device.srq_sge_max);
    attr.max_mw = attr.max_mr;
    attr.device_cap_flags = abi::DEVICE_MEM_WINDOW | abi::DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = device.ports;
    attr
}

unsafe extern "C" fn query_device_ex(
    context: *mut abi::Context,
    _input: *const c_void,
    attr: *mut abi::DeviceAttrEx,
    size: usize,
) -> c_int {
    if size < size_of::<abi::DeviceAttr>() {
        return libc::EINVAL;
    }
    // SAFETY: numbers, for which zero says that there is none.
    let mut full: abi::DeviceAttrEx = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's promise.
    full.orig_attr = device_attr(unsafe { Opened::of(context) });
    let all = abi::ODP_SUPPORT_SEND | abi::ODP_SUPPORT_RECV | abi::ODP_SUPPORT_SRQ_RECV;
    let written = all | abi::ODP_SUPPORT_WRITE;
    full.odp_caps = abi::OdpCaps {
        general_caps: abi::ODP_SUPPORT | abi::ODP_SUPPORT_IMPLICIT,
        // As the transports are numbered: RC, UC, UD.
        per_transport_caps: [
            written | abi::ODP_SUPPORT_READ | abi::ODP_SUPPORT_ATOMIC,
            written,
            all,
        ],
    };
    // Nanoseconds, in 64 bits; the frequency is in kHz.
    full.completion_timestamp_mask = u64::MAX;
    full.hca_core_clock = 1_000_000;
    full.device_cap_flags_ex = full.orig_attr.device_cap_flags.into();
    full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt.into();
    // SAFETY: the caller has as much room as it says.
    unsafe { put(&full, attr, size) };
    0
}

/// Copies what the caller knows of a structure, and zeroes what it knows beyond ours.
///
/// # Safety
/// `to` has room for `size` bytes.
unsafe fn put<T>(from: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: within both.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}

fn port_attr(opened: &Opened, number: u8) -> Result<abi::PortAttr, Errno> {
    let port: PortAttr = opened.nic.port(number).map_err(|error| errno_of(&error))?;
    // SAFETY: numbers, for which zero says that there is none.
    let mut attr: abi::PortAttr = unsafe { std::mem::zeroed() };
    attr.state = match port.state {
        PortState::Init => abi::PORT_INIT,
        PortState::Armed => abi::PORT_ARMED,
        PortState::Active => abi::PORT_ACTIVE,
        _ => abi::PORT_DOWN,
    };
    attr.max_mtu = port.mtu_max as c_int + 1;
    attr.active_mtu = port.mtu as c_int + 1;
    attr.gid_tbl_len = count(port.gids.len() as u64);
    attr.port_cap_flags = PORT_CAPS;
    attr.max_msg_sz = opened.nic.device().message_len_max;
    attr.pkey_tbl_len = port.pkeys.len() as u16;
    attr.lid = port.lid;
    attr.max_vl_num = 1;
    // As a link of 100 Gb/s: 4 lanes of 25.
    attr.active_width = 2;
    attr.active_speed = 32;
    // "LinkUp" and "Disabled".
    attr.phys_state = if port.state == PortState::Active {
        5
    } else {
        3
    };
    attr.link_layer = match port.link_layer {
        LinkLayer::InfiniBand => abi::LINK_LAYER_INFINIBAND,
        _ => abi::LINK_LAYER_ETHERNET,
    };
    Ok(attr)
}

unsafe extern "C" fn query_port(
    context: *mut abi::Context,
    number: u8,
    attr: *mut abi::PortAttr,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = port_attr(unsafe { Opened::of(context) }, number);
    // SAFETY: the caller has as much room as it says.
    code(found.map(|port| unsafe { put(&port, attr, size) }))
}

/// As programs call it that were built before ports had all of their attributes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut abi::Context,
    number: u8,
    attr: *mut abi::PortAttr,
) -> c_int {
    let known = std::mem::offset_of!(abi::PortAttr, port_cap_flags2);
    // SAFETY: the caller's promise.
    unsafe { query_port(context, number, attr, known) }
}

/// An entry of a port's GID table.
pub(crate) fn gid(opened: &Opened, port: u32, index: u32) -> Result<GidEntry, Errno> {
    let number = u8::try_from(port).map_err(|_| libc::EINVAL)?;
    let port = opened.nic.port(number).map_err(|error| errno_of(&error))?;
    port.gids.get(index as usize).copied().ok_or(libc::EINVAL)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    to: *mut [u8; 16],
) -> c_int {
    // SAFETY: the caller's promise.
    let found = gid(unsafe { Opened::of(context) }, port.into(), index as u32);
    // SAFETY: the caller's.
    minus_one(found.map(|entry| unsafe { to.write(entry.gid.0) }))
}

fn gid_entry(entry: &GidEntry, port: u32, index: u32) -> abi::GidEntry {
    abi::GidEntry {
        gid: entry.gid.0,
        gid_index: index,
        port_num: port,
        gid_type: match entry.kind {
            GidKind::InfiniBand => abi::GID_TYPE_IB,
            GidKind::RoceV1 => abi::GID_TYPE_ROCE_V1,
            _ => abi::GID_TYPE_ROCE_V2,
        },
        ndev_ifindex: entry.interface,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut abi::Context,
    port: u32,
    index: u32,
    to: *mut abi::GidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let found = gid(unsafe { Opened::of(context) }, port, index);
    // SAFETY: the caller has as much room as it says.
    code(found.map(|entry| unsafe { put(&gid_entry(&entry, port, index), to, size) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut abi::Context,
    to: *mut abi::GidEntry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let (Ok(port), 0) = (opened.nic.port(1), flags) else {
        return -(libc::EINVAL as isize);
    };
    if max < port.gids.len() {
        return -(libc::EINVAL as isize);
    }
    for (index, entry) in port.gids.iter().enumerate() {
        let entry = gid_entry(entry, 1, index as u32);
        // SAFETY: the caller has room for `max` entries of this size.
        unsafe { put(&entry, to.byte_add(index * size), size) };
    }
    port.gids.len() as isize
}

/// A private symbol of libibverbs, which its own programs use: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    context: *mut abi::Context,
    port: u8,
    index: u32,
    to: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = gid(unsafe { Opened::of(context) }, port.into(), index);
    // SAFETY: the caller's.
    minus_one(found.map(|entry| unsafe { to.write((entry.kind == GidKind::RoceV2).into()) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    to: *mut u16,
) -> c_int {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let port = opened.nic.port(port).map_err(|error| errno_of(&error));
    let found = port.and_then(|port| port.pkeys.get(index as usize).copied().ok_or(libc::EINVAL));
    // SAFETY: the caller's.
    minus_one(found.map(|pkey| unsafe { to.write(pkey.0.to_be()) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_pkey_index(context: *mut abi::Context, port: u8, pkey: u16) -> c_int {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let found = opened.nic.port(port).ok().and_then(|port| {
        let is_it = |one: &verbs::Pkey| one.0 == u16::from_be(pkey);
        port.pkeys.iter().position(is_it)
    });
    found.map_or_else(
        || {
            set_errno(libc::EINVAL);
            -1
        },
        |index| index as c_int,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut abi::Context,
    event: *mut abi::AsyncEvent,
) -> c_int {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let found = opened
        .checked()
        .and_then(|opened| wait_for(opened.events.as_fd(), || Ok(next_event(opened))));
    // SAFETY: the caller's.
    minus_one(found.map(|found| unsafe { event.write(found) }))
}

/// An event of a port, whose number stands where other events have a pointer; 0 for the device's own.
fn port_event(port: u8, event_type: c_int) -> abi::AsyncEvent {
    abi::AsyncEvent {
        element: std::ptr::without_provenance_mut(port.into()),
        event_type,
    }
}

/// The next event that libibverbs has a name for, of an object that is still there.
fn next_event(opened: &Opened) -> Option<abi::AsyncEvent> {
    loop {
        let event = opened.nic.async_event()?;
        // The program's acknowledgement is for its objects; the NIC's numbers need not wait for it.
        opened.nic.acknowledge(event);
        let objects = opened.objects();
        let found = match event {
            // SAFETY: one that is in the table is there, and waits for what it has reported when it goes.
            AsyncEvent::QpFatal(num) => objects.qps.get(&num.0).and_then(|qp| unsafe {
                // Completions tell of the error. Who shares a receive queue waits for this before the queue pair goes.
                (*qp.cast::<Qp>()).has_srq().then(|| {
                    (*qp.cast::<Qp>()).report();
                    abi::AsyncEvent {
                        element: qp.cast(),
                        event_type: abi::EVENT_QP_LAST_WQE_REACHED,
                    }
                })
            }),
            // SAFETY: as above.
            AsyncEvent::CqError(num) => objects.cqs.get(&num.0).map(|cq| unsafe {
                (*cq.cast::<Cq>()).report();
                abi::AsyncEvent {
                    element: cq.cast(),
                    event_type: abi::EVENT_CQ_ERR,
                }
            }),
            // SAFETY: as above.
            AsyncEvent::SrqLimit(num) => objects.srqs.get(&num.0).map(|srq| unsafe {
                (*srq.cast::<Srq>()).report();
                abi::AsyncEvent {
                    element: srq.cast(),
                    event_type: abi::EVENT_SRQ_LIMIT_REACHED,
                }
            }),
            // SAFETY: as above.
            AsyncEvent::QpCatastrophe(num) => objects.qps.get(&num.0).map(|qp| unsafe {
                (*qp.cast::<Qp>()).report();
                abi::AsyncEvent {
                    element: qp.cast(),
                    event_type: abi::EVENT_QP_FATAL,
                }
            }),
            AsyncEvent::PortDown(port) => Some(port_event(port, abi::EVENT_PORT_ERR)),
            AsyncEvent::PortUp(port) => Some(port_event(port, abi::EVENT_PORT_ACTIVE)),
            AsyncEvent::DeviceFatal => Some(port_event(0, abi::EVENT_DEVICE_FATAL)),
            // A real device notices by its retries alone.
            _ => None,
        };
        drop(objects);
        if found.is_some() {
            return found;
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut abi::AsyncEvent) {
    // SAFETY: as `ibv_get_async_event` gave it; its object does not go before this.
    unsafe {
        let event = &*event;
        match event.event_type {
            abi::EVENT_QP_LAST_WQE_REACHED | abi::EVENT_QP_FATAL => {
                let qp = event.element.cast::<abi::Qp>();
                let (mutex, cond) = (&raw mut (*qp).mutex, &raw mut (*qp).cond);
                events::acknowledge(mutex, cond, &raw mut (*qp).events_completed, 1);
            }
            abi::EVENT_CQ_ERR => {
                let cq = event.element.cast::<abi::CqEx>();
                let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
                events::acknowledge(mutex, cond, &raw mut (*cq).async_events_completed, 1);
            }
            abi::EVENT_SRQ_LIMIT_REACHED => {
                let srq = event.element.cast::<abi::Srq>();
                let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
                events::acknowledge(mutex, cond, &raw mut (*srq).events_completed, 1);
            }
            _ => {}
        }
    }
}
