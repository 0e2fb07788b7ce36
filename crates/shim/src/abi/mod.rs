//! The structures that libibverbs shares with programs, as rdma-core 44 lays them out on 64-bit
//! machines. Programs reach into all of them, and call through the function pointers in some.
//!
//! Names are those of `infiniband/verbs.h` without `ibv_`. `tests/it/layout.rs` compares every field, and every number of
//! `abi/numbers.rs`, with what a C compiler makes of that header.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

pub(crate) mod errno;
mod numbers;
pub(crate) mod theirs;
pub(crate) use numbers::*;
#[doc(hidden)]
pub use numbers::{NUMBERS, qp_attr};

/// A function that programs find in a structure by its place, and that is not there.
pub(crate) type Absent = Option<unsafe extern "C" fn()>;

/// What says that a [`Context`] is the end of a [`VerbsContext`].
pub(crate) const IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// Where a structure's fields begin.
#[doc(hidden)]
#[derive(Debug)]
pub struct Layout {
    pub name: &'static str,
    /// Bytes of all of it.
    pub len: usize,
    pub fields: &'static [(&'static str, usize)],
}

macro_rules! structure {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub struct $name {
            $(pub(crate) $field: $type),*
        }

        impl $name {
            /// Where each field begins, and how long all of it is.
            #[doc(hidden)]
            pub const LAYOUT: Layout = Layout {
                name: stringify!($name),
                len: size_of::<$name>(),
                fields: &[$((stringify!($field), std::mem::offset_of!($name, $field))),*],
            };
        }
    };
}

structure! {
    /// `struct ibv_device`.
    Device {
        _ops: [*mut c_void; 2],
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }
}

structure! {
    /// `struct ibv_device_attr`.
    DeviceAttr {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: c_uint,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }
}

structure! {
    /// `struct ibv_odp_caps`.
    OdpCaps {
        general_caps: u64,
        per_transport_caps: [u32; 3],
    }
}

structure! {
    /// `struct ibv_device_attr_ex`. What follows `device_cap_flags_ex` says of nothing that it is there.
    DeviceAttrEx {
        orig_attr: DeviceAttr,
        comp_mask: u32,
        odp_caps: OdpCaps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: [u32; 2],
        rss_caps: [u64; 4],
        max_wq_type_rq: u32,
        packet_pacing_caps: [u32; 3],
        raw_packet_caps: u32,
        tm_caps: [u32; 5],
        cq_mod_caps: [u16; 2],
        max_dm_size: u64,
        pci_atomic_caps: [u16; 3],
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }
}

structure! {
    /// `struct ibv_port_attr`.
    PortAttr {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }
}

structure! {
    /// `struct ibv_gid_entry`.
    GidEntry {
        gid: [u8; 16],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }
}

structure! {
    /// `struct ibv_async_event`.
    AsyncEvent {
        element: *mut c_void,
        event_type: c_int,
    }
}

structure! {
    /// `struct ibv_wc`.
    Wc {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }
}

structure! {
    /// `struct ibv_pd`.
    Pd {
        context: *mut Context,
        handle: u32,
    }
}

structure! {
    /// `struct ibv_mr`.
    Mr {
        context: *mut Context,
        pd: *mut Pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }
}

structure! {
    /// `struct ibv_td`.
    Td {
        context: *mut Context,
    }
}

structure! {
    /// `struct ibv_td_init_attr`.
    TdInitAttr {
        comp_mask: u32,
    }
}

structure! {
    /// `struct ibv_parent_domain_init_attr`. Its allocators are for what a driver allocates: this one has nothing that
    /// could lie in a program's memory.
    ParentDomainInitAttr {
        pd: *mut Pd,
        td: *mut Td,
        comp_mask: u32,
        alloc: Absent,
        free: Absent,
        pd_context: *mut c_void,
    }
}

structure! {
    /// `struct ibv_mw`.
    Mw {
        context: *mut Context,
        pd: *mut Pd,
        rkey: u32,
        handle: u32,
        kind: c_int,
    }
}

structure! {
    /// `struct ibv_mw_bind_info`.
    MwBindInfo {
        mr: *mut Mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }
}

structure! {
    /// `struct ibv_mw_bind`.
    MwBind {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: MwBindInfo,
    }
}

structure! {
    /// `struct ibv_global_route`. The GID is two words of 64 bits in C.
    GlobalRoute {
        dgid: [u64; 2],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }
}

structure! {
    /// `struct ibv_grh`: the route of a datagram, as it stands before its bytes.
    Grh {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: [u64; 2],
        dgid: [u64; 2],
    }
}

structure! {
    /// `struct ibv_ah_attr`.
    AhAttr {
        grh: GlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
}

structure! {
    /// `struct ibv_srq_attr`.
    SrqAttr {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
}

structure! {
    /// `struct ibv_srq_init_attr`.
    SrqInitAttr {
        srq_context: *mut c_void,
        attr: SrqAttr,
    }
}

structure! {
    /// `struct ibv_qp_cap`.
    QpCap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }
}

structure! {
    /// `struct ibv_qp_init_attr`.
    QpInitAttr {
        qp_context: *mut c_void,
        send_cq: *mut CqEx,
        recv_cq: *mut CqEx,
        srq: *mut Srq,
        cap: QpCap,
        qp_type: c_int,
        sq_sig_all: c_int,
    }
}

structure! {
    /// `struct ibv_qp_attr`.
    QpAttr {
        qp_state: c_int,
        cur_qp_state: c_int,
        path_mtu: c_int,
        path_mig_state: c_int,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: QpCap,
        ah_attr: AhAttr,
        alt_ah_attr: AhAttr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }
}

structure! {
    /// `struct ibv_sge`.
    Sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }
}

/// What a send work request says of its peer: the union `wr` of `struct ibv_send_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Remote {
    pub(crate) rdma: RemoteRdma,
    pub(crate) atomic: RemoteAtomic,
    pub(crate) ud: RemoteUd,
}

structure! {
    /// Its part of a READ or WRITE.
    RemoteRdma {
        remote_addr: u64,
        rkey: u32,
    }
}

structure! {
    /// Its part of an atomic.
    RemoteAtomic {
        remote_addr: u64,
        compare_add: u64,
        swap: u64,
        rkey: u32,
    }
}

structure! {
    /// Its part of a datagram.
    RemoteUd {
        ah: *mut Ah,
        remote_qpn: u32,
        remote_qkey: u32,
    }
}

structure! {
    /// `struct ibv_send_wr`. `imm_data` is the key that a SEND invalidates, too.
    SendWr {
        wr_id: u64,
        next: *mut SendWr,
        sg_list: *mut Sge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: c_uint,
        imm_data: u32,
        wr: Remote,
        qp_type: u32,
        bind_mw: SendBindMw,
    }
}

structure! {
    /// What it says of the window that it binds.
    SendBindMw {
        mw: *mut Mw,
        rkey: u32,
        bind_info: MwBindInfo,
    }
}

structure! {
    /// `struct ibv_recv_wr`.
    RecvWr {
        wr_id: u64,
        next: *mut RecvWr,
        sg_list: *mut Sge,
        num_sge: c_int,
    }
}

structure! {
    /// `struct ibv_srq`.
    Srq {
        context: *mut Context,
        srq_context: *mut c_void,
        pd: *mut Pd,
        handle: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }
}

structure! {
    /// `struct ibv_qp`.
    Qp {
        context: *mut Context,
        qp_context: *mut c_void,
        pd: *mut Pd,
        send_cq: *mut CqEx,
        recv_cq: *mut CqEx,
        srq: *mut Srq,
        handle: u32,
        qp_num: u32,
        state: c_int,
        qp_type: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }
}

/// What `ibv_wr_*` call, each with its request's part of the arguments.
pub(crate) type WrAtomicCmpSwp = unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64);
pub(crate) type WrAtomicFetchAdd = unsafe extern "C" fn(*mut QpEx, u32, u64, u64);
pub(crate) type WrRdma = unsafe extern "C" fn(*mut QpEx, u32, u64);
pub(crate) type WrRdmaImm = unsafe extern "C" fn(*mut QpEx, u32, u64, u32);
pub(crate) type WrStep = unsafe extern "C" fn(*mut QpEx);
pub(crate) type WrImm = unsafe extern "C" fn(*mut QpEx, u32);
pub(crate) type WrSetUdAddr = unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32);
pub(crate) type WrSetInlineData = unsafe extern "C" fn(*mut QpEx, *mut c_void, usize);
pub(crate) type WrSetInlineDataList = unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf);
pub(crate) type WrSetSge = unsafe extern "C" fn(*mut QpEx, u32, u64, u32);
pub(crate) type WrSetSgeList = unsafe extern "C" fn(*mut QpEx, usize, *const Sge);
pub(crate) type WrBindMw = unsafe extern "C" fn(*mut QpEx, *mut Mw, u32, *const MwBindInfo);
pub(crate) type WrComplete = unsafe extern "C" fn(*mut QpEx) -> c_int;

structure! {
    /// `struct ibv_data_buf`.
    DataBuf {
        addr: *mut c_void,
        length: usize,
    }
}

structure! {
    /// `struct ibv_qp_ex`, which begins with a `struct ibv_qp`.
    QpEx {
        qp_base: Qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: Option<WrAtomicCmpSwp>,
        wr_atomic_fetch_add: Option<WrAtomicFetchAdd>,
        wr_bind_mw: Option<WrBindMw>,
        wr_local_inv: Option<WrImm>,
        wr_rdma_read: Option<WrRdma>,
        wr_rdma_write: Option<WrRdma>,
        wr_rdma_write_imm: Option<WrRdmaImm>,
        wr_send: Option<WrStep>,
        wr_send_imm: Option<WrImm>,
        wr_send_inv: Option<WrImm>,
        wr_send_tso: Absent,
        wr_set_ud_addr: Option<WrSetUdAddr>,
        wr_set_xrc_srqn: Absent,
        wr_set_inline_data: Option<WrSetInlineData>,
        wr_set_inline_data_list: Option<WrSetInlineDataList>,
        wr_set_sge: Option<WrSetSge>,
        wr_set_sge_list: Option<WrSetSgeList>,
        wr_start: Option<WrStep>,
        wr_complete: Option<WrComplete>,
        wr_abort: Option<WrStep>,
        wr_atomic_write: Absent,
    }
}

structure! {
    /// `struct ibv_qp_init_attr_ex`.
    QpInitAttrEx {
        qp_context: *mut c_void,
        send_cq: *mut CqEx,
        recv_cq: *mut CqEx,
        srq: *mut Srq,
        cap: QpCap,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut Pd,
        xrcd: *mut c_void,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: [u64; 3],
        source_qpn: u32,
        send_ops_flags: u64,
    }
}

/// `enum ibv_qp_create_send_ops_flags`: READs, WRITEs, SENDs and atomics, with and without immediate data, and what
/// windows need.
pub(crate) const SEND_OPS_KNOWN: u64 = 0x3ff;

structure! {
    /// `struct ibv_sa_path_rec`, of `infiniband/sa.h`.
    SaPathRec {
        dgid: [u64; 2],
        sgid: [u64; 2],
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
}

structure! {
    /// `struct ibv_comp_channel`.
    CompChannel {
        context: *mut Context,
        fd: c_int,
        refcnt: c_int,
    }
}

/// What `ibv_start_poll` and its like call, and `ibv_wc_read_*`.
pub(crate) type StartPoll = unsafe extern "C" fn(*mut CqEx, *const PollCqAttr) -> c_int;
pub(crate) type NextPoll = unsafe extern "C" fn(*mut CqEx) -> c_int;
pub(crate) type EndPoll = unsafe extern "C" fn(*mut CqEx);
pub(crate) type ReadU32 = unsafe extern "C" fn(*mut CqEx) -> u32;
pub(crate) type ReadU64 = unsafe extern "C" fn(*mut CqEx) -> u64;
pub(crate) type ReadU16 = unsafe extern "C" fn(*mut CqEx) -> u16;
pub(crate) type ReadU8 = unsafe extern "C" fn(*mut CqEx) -> u8;

structure! {
    /// `struct ibv_poll_cq_attr`.
    PollCqAttr {
        comp_mask: u32,
    }
}

structure! {
    /// `struct ibv_cq_init_attr_ex`.
    CqInitAttrEx {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut CompChannel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut Pd,
    }
}

structure! {
    /// `struct ibv_cq_ex`, which begins as `struct ibv_cq`.
    CqEx {
        context: *mut Context,
        channel: *mut CompChannel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_int,
        wr_id: u64,
        start_poll: Option<StartPoll>,
        next_poll: Option<NextPoll>,
        end_poll: Option<EndPoll>,
        read_opcode: Option<NextPoll>,
        read_vendor_err: Option<ReadU32>,
        read_byte_len: Option<ReadU32>,
        read_imm_data: Option<ReadU32>,
        read_qp_num: Option<ReadU32>,
        read_src_qp: Option<ReadU32>,
        read_wc_flags: Option<ReadU32>,
        read_slid: Option<ReadU32>,
        read_sl: Option<ReadU8>,
        read_dlid_path_bits: Option<ReadU8>,
        read_completion_ts: Option<ReadU64>,
        read_cvlan: Option<ReadU16>,
        read_flow_tag: Option<ReadU32>,
        read_tm_info: Absent,
        read_completion_wallclock_ns: Option<ReadU64>,
    }
}

structure! {
    /// `struct ibv_ah`.
    Ah {
        context: *mut Context,
        pd: *mut Pd,
        handle: u32,
    }
}

pub(crate) type PollCq = unsafe extern "C" fn(*mut CqEx, c_int, *mut Wc) -> c_int;
pub(crate) type ReqNotifyCq = unsafe extern "C" fn(*mut CqEx, c_int) -> c_int;
pub(crate) type PostSrqRecv =
    unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int;
pub(crate) type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
pub(crate) type PostRecv = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;
pub(crate) type QueryPort = unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int;
pub(crate) type QueryDeviceEx =
    unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int;

pub(crate) type CreateCqEx = unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx;
pub(crate) type CreateQpEx = unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp;

pub(crate) type AllocMw = unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw;
pub(crate) type BindMw = unsafe extern "C" fn(*mut Qp, *mut Mw, *mut MwBind) -> c_int;
pub(crate) type DeallocMw = unsafe extern "C" fn(*mut Mw) -> c_int;
pub(crate) type AdviseMr = unsafe extern "C" fn(*mut Pd, c_int, u32, *mut Sge, u32) -> c_int;
pub(crate) type AllocTd = unsafe extern "C" fn(*mut Context, *mut TdInitAttr) -> *mut Td;
pub(crate) type DeallocTd = unsafe extern "C" fn(*mut Td) -> c_int;
pub(crate) type AllocParentDomain =
    unsafe extern "C" fn(*mut Context, *mut ParentDomainInitAttr) -> *mut Pd;
pub(crate) type QueryRtValues = unsafe extern "C" fn(*mut Context, *mut ValuesEx) -> c_int;

structure! {
    /// `struct ibv_values_ex`.
    ValuesEx {
        comp_mask: u32,
        raw_clock: libc::timespec,
    }
}

structure! {
    /// `struct ibv_context`.
    Context {
        device: *mut Device,
        ops: ContextOps,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }
}

structure! {
    /// `struct ibv_context_ops`: what programs call without a symbol's help.
    ContextOps {
        _before_alloc_mw: [Absent; 7],
        alloc_mw: Option<AllocMw>,
        bind_mw: Option<BindMw>,
        dealloc_mw: Option<DeallocMw>,
        _compat_create_cq: Absent,
        poll_cq: Option<PollCq>,
        req_notify_cq: Option<ReqNotifyCq>,
        _before_post_srq_recv: [Absent; 7],
        post_srq_recv: Option<PostSrqRecv>,
        _before_post_send: [Absent; 4],
        post_send: Option<PostSend>,
        post_recv: Option<PostRecv>,
        _after_post_recv: [Absent; 5],
    }
}

structure! {
    /// `struct verbs_context`, which grows at its beginning.
    VerbsContext {
        query_port: Option<QueryPort>,
        advise_mr: Option<AdviseMr>,
        _before_alloc_parent_domain: [Absent; 12],
        alloc_parent_domain: Option<AllocParentDomain>,
        dealloc_td: Option<DeallocTd>,
        alloc_td: Option<AllocTd>,
        _before_query_rt_values: [Absent; 7],
        query_rt_values: Option<QueryRtValues>,
        create_cq_ex: Option<CreateCqEx>,
        private: *mut c_void,
        query_device_ex: Option<QueryDeviceEx>,
        _before_create_qp_ex: [Absent; 5],
        create_qp_ex: Option<CreateQpEx>,
        get_srq_num: Absent,
        create_srq_ex: Absent,
        open_xrcd: Absent,
        close_xrcd: Absent,
        _unused: u64,
        sz: usize,
        context: Context,
    }
}

/// Of every structure, for the test that compares them with the header.
#[doc(hidden)]
pub const LAYOUTS: &[Layout] = &[
    Device::LAYOUT,
    DeviceAttr::LAYOUT,
    OdpCaps::LAYOUT,
    DeviceAttrEx::LAYOUT,
    PortAttr::LAYOUT,
    GidEntry::LAYOUT,
    AsyncEvent::LAYOUT,
    Wc::LAYOUT,
    Pd::LAYOUT,
    Mr::LAYOUT,
    Td::LAYOUT,
    TdInitAttr::LAYOUT,
    ParentDomainInitAttr::LAYOUT,
    Mw::LAYOUT,
    MwBindInfo::LAYOUT,
    MwBind::LAYOUT,
    ValuesEx::LAYOUT,
    GlobalRoute::LAYOUT,
    Grh::LAYOUT,
    AhAttr::LAYOUT,
    SrqAttr::LAYOUT,
    SrqInitAttr::LAYOUT,
    QpCap::LAYOUT,
    QpInitAttr::LAYOUT,
    QpAttr::LAYOUT,
    Sge::LAYOUT,
    SendWr::LAYOUT,
    RecvWr::LAYOUT,
    Srq::LAYOUT,
    Qp::LAYOUT,
    QpEx::LAYOUT,
    QpInitAttrEx::LAYOUT,
    DataBuf::LAYOUT,
    CompChannel::LAYOUT,
    CqEx::LAYOUT,
    CqInitAttrEx::LAYOUT,
    PollCqAttr::LAYOUT,
    Ah::LAYOUT,
    SaPathRec::LAYOUT,
    Context::LAYOUT,
    ContextOps::LAYOUT,
    VerbsContext::LAYOUT,
];

const _: () = assert!(
    std::mem::offset_of!(VerbsContext, context) == 320 && size_of::<VerbsContext>() == 648,
    "as programs were compiled"
);
