//! The numbers that libibverbs shares with programs. Names are those of `infiniband/verbs.h` without `IBV_`.

use std::ffi::{c_int, c_uint};

/// Defines numbers, and a list of them by their names in C.
macro_rules! numbers {
    ($prefix:literal, $list:ident: $($(#[$doc:meta])* pub(crate) const $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            pub(crate) const $name: $type = $value;
        )*

        /// The numbers by their names in C.
        #[doc(hidden)]
        pub const $list: &[(&str, i64)] =
            &[$((concat!("IBV_", $prefix, stringify!($name)), $name as i64)),*];
    };
}

numbers! { "", NUMBERS:
    pub(crate) const NODE_CA: c_int = 1;
    pub(crate) const TRANSPORT_IB: c_int = 0;

    pub(crate) const PORT_DOWN: c_int = 1;
    pub(crate) const PORT_INIT: c_int = 2;
    pub(crate) const PORT_ARMED: c_int = 3;
    pub(crate) const PORT_ACTIVE: c_int = 4;

    pub(crate) const LINK_LAYER_INFINIBAND: u8 = 1;
    pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;

    /// The GID table is made from IP addresses.
    pub(crate) const PORT_IP_BASED_GIDS: u32 = 1 << 26;
    /// Connections are made by a connection manager.
    pub(crate) const PORT_CM_SUP: u32 = 1 << 16;

    pub(crate) const GID_TYPE_IB: u32 = 0;
    pub(crate) const GID_TYPE_ROCE_V1: u32 = 1;
    pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;

    pub(crate) const QPT_RC: c_int = 2;
    pub(crate) const QPT_UC: c_int = 3;
    pub(crate) const QPT_UD: c_int = 4;
    pub(crate) const QPT_RAW_PACKET: c_int = 8;
    pub(crate) const QPT_XRC_SEND: c_int = 9;
    pub(crate) const QPT_XRC_RECV: c_int = 10;
    pub(crate) const QPT_DRIVER: c_int = 0xff;

    pub(crate) const QPS_UNKNOWN: c_int = 7;

    /// `enum ibv_event_type`.
    pub(crate) const EVENT_CQ_ERR: c_int = 0;
    pub(crate) const EVENT_QP_FATAL: c_int = 1;
    pub(crate) const EVENT_DEVICE_FATAL: c_int = 8;
    pub(crate) const EVENT_PORT_ACTIVE: c_int = 9;
    pub(crate) const EVENT_PORT_ERR: c_int = 10;
    pub(crate) const EVENT_SRQ_LIMIT_REACHED: c_int = 15;
    pub(crate) const EVENT_QP_LAST_WQE_REACHED: c_int = 16;

    /// `enum ibv_access_flags`, where it is not [`verbs::Access`].
    pub(crate) const ACCESS_ZERO_BASED: c_uint = 1 << 5;
    pub(crate) const ACCESS_ON_DEMAND: c_uint = 1 << 6;
    pub(crate) const ACCESS_HUGETLB: c_uint = 1 << 7;

    /// `enum ibv_device_cap_flags`.
    pub(crate) const DEVICE_MEM_WINDOW: c_uint = 1 << 17;
    pub(crate) const DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;

    /// `enum ibv_odp_general_caps` and `enum ibv_odp_transport_cap_bits`.
    pub(crate) const ODP_SUPPORT: u64 = 1;
    pub(crate) const ODP_SUPPORT_IMPLICIT: u64 = 1 << 1;
    pub(crate) const ODP_SUPPORT_SEND: u32 = 1;
    pub(crate) const ODP_SUPPORT_RECV: u32 = 1 << 1;
    pub(crate) const ODP_SUPPORT_WRITE: u32 = 1 << 2;
    pub(crate) const ODP_SUPPORT_READ: u32 = 1 << 3;
    pub(crate) const ODP_SUPPORT_ATOMIC: u32 = 1 << 4;
    pub(crate) const ODP_SUPPORT_SRQ_RECV: u32 = 1 << 5;

    /// `enum ibv_advise_mr_advice`.
    pub(crate) const ADVISE_MR_ADVICE_PREFETCH: c_int = 0;
    pub(crate) const ADVISE_MR_ADVICE_PREFETCH_WRITE: c_int = 1;
    pub(crate) const ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: c_int = 2;
    /// `enum ibv_advise_mr_flags`.
    pub(crate) const ADVISE_MR_FLAG_FLUSH: u32 = 1;

    /// `enum ibv_rereg_mr_flags`.
    pub(crate) const REREG_MR_CHANGE_TRANSLATION: c_int = 1;
    pub(crate) const REREG_MR_CHANGE_PD: c_int = 1 << 1;
    pub(crate) const REREG_MR_CHANGE_ACCESS: c_int = 1 << 2;
    /// `enum ibv_rereg_mr_err_code`: the old region is as it was.
    pub(crate) const REREG_MR_ERR_INPUT: c_int = -1;

    /// `enum ibv_srq_attr_mask`.
    pub(crate) const SRQ_MAX_WR: c_int = 1;
    pub(crate) const SRQ_LIMIT: c_int = 1 << 1;

    /// `enum ibv_mw_type`.
    pub(crate) const MW_TYPE_1: c_int = 1;
    pub(crate) const MW_TYPE_2: c_int = 2;

    /// `enum ibv_parent_domain_init_attr_mask`.
    pub(crate) const PARENT_DOMAIN_INIT_ATTR_ALLOCATORS: u32 = 1;
    pub(crate) const PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT: u32 = 1 << 1;

    /// `enum ibv_values_mask`.
    pub(crate) const VALUES_MASK_RAW_CLOCK: u32 = 1;

    pub(crate) const SEND_FENCE: c_uint = 1;
    pub(crate) const SEND_SIGNALED: c_uint = 1 << 1;
    pub(crate) const SEND_SOLICITED: c_uint = 1 << 2;
    pub(crate) const SEND_INLINE: c_uint = 1 << 3;

    pub(crate) const WR_RDMA_WRITE: c_int = 0;
    pub(crate) const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
    pub(crate) const WR_SEND: c_int = 2;
    pub(crate) const WR_SEND_WITH_IMM: c_int = 3;
    pub(crate) const WR_RDMA_READ: c_int = 4;
    pub(crate) const WR_ATOMIC_CMP_AND_SWP: c_int = 5;
    pub(crate) const WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
    pub(crate) const WR_LOCAL_INV: c_int = 7;
    pub(crate) const WR_BIND_MW: c_int = 8;
    pub(crate) const WR_SEND_WITH_INV: c_int = 9;

    pub(crate) const WC_SEND: c_int = 0;
    pub(crate) const WC_RDMA_WRITE: c_int = 1;
    pub(crate) const WC_RDMA_READ: c_int = 2;
    pub(crate) const WC_COMP_SWAP: c_int = 3;
    pub(crate) const WC_FETCH_ADD: c_int = 4;
    pub(crate) const WC_BIND_MW: c_int = 5;
    pub(crate) const WC_LOCAL_INV: c_int = 6;
    pub(crate) const WC_RECV: c_int = 1 << 7;
    pub(crate) const WC_RECV_RDMA_WITH_IMM: c_int = WC_RECV + 1;
    pub(crate) const WC_GRH: c_uint = 1;
    pub(crate) const WC_WITH_IMM: c_uint = 1 << 1;
    pub(crate) const WC_WITH_INV: c_uint = 1 << 3;

    /// `enum ibv_qp_init_attr_mask`.
    pub(crate) const QP_INIT_ATTR_PD: u32 = 1;
    pub(crate) const QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
    pub(crate) const QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

    /// `enum ibv_qp_create_flags`.
    pub(crate) const QP_CREATE_BLOCK_SELF_MCAST_LB: u32 = 1 << 1;

    /// `enum ibv_create_cq_wc_flags`: length, immediate data, queue pairs' numbers, and what an InfiniBand path has.
    pub(crate) const WC_STANDARD_FLAGS: u64 = 0x7f;
    pub(crate) const WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
    pub(crate) const WC_EX_WITH_CVLAN: u64 = 1 << 8;
    pub(crate) const WC_EX_WITH_FLOW_TAG: u64 = 1 << 9;
    pub(crate) const WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;

    /// `enum ibv_cq_init_attr_mask`.
    pub(crate) const CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
    pub(crate) const CQ_INIT_ATTR_MASK_PD: u32 = 1 << 1;
    /// `enum ibv_create_cq_attr_flags`.
    pub(crate) const CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
    pub(crate) const CREATE_CQ_ATTR_IGNORE_OVERRUN: u32 = 1 << 1;
}

/// `enum ibv_qp_attr_mask`.
#[doc(hidden)]
pub mod qp_attr {
    use std::ffi::c_int;

    numbers! { "QP_", NUMBERS:
        pub(crate) const STATE: c_int = 1;
        pub(crate) const CUR_STATE: c_int = 1 << 1;
        pub(crate) const ACCESS_FLAGS: c_int = 1 << 3;
        pub(crate) const PKEY_INDEX: c_int = 1 << 4;
        pub(crate) const PORT: c_int = 1 << 5;
        pub(crate) const QKEY: c_int = 1 << 6;
        pub(crate) const AV: c_int = 1 << 7;
        pub(crate) const PATH_MTU: c_int = 1 << 8;
        pub(crate) const TIMEOUT: c_int = 1 << 9;
        pub(crate) const RETRY_CNT: c_int = 1 << 10;
        pub(crate) const RNR_RETRY: c_int = 1 << 11;
        pub(crate) const RQ_PSN: c_int = 1 << 12;
        pub(crate) const MAX_QP_RD_ATOMIC: c_int = 1 << 13;
        pub(crate) const MIN_RNR_TIMER: c_int = 1 << 15;
        pub(crate) const SQ_PSN: c_int = 1 << 16;
        pub(crate) const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
        pub(crate) const DEST_QPN: c_int = 1 << 20;
    }

    /// All that this device knows.
    pub(crate) const KNOWN: c_int = STATE
        | CUR_STATE
        | ACCESS_FLAGS
        | PKEY_INDEX
        | PORT
        | QKEY
        | AV
        | PATH_MTU
        | TIMEOUT
        | RETRY_CNT
        | RNR_RETRY
        | RQ_PSN
        | MAX_QP_RD_ATOMIC
        | MIN_RNR_TIMER
        | SQ_PSN
        | MAX_DEST_RD_ATOMIC
        | DEST_QPN;
}
