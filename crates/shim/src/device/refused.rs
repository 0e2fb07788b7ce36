//! What this device does not have: refused as the manual pages say, so that nothing of it reaches a real device.

use std::ffi::{c_int, c_void};

use crate::abi::errno::pointer;
use crate::abi::{Context, Mr, Pd, Qp};

macro_rules! refused {
    ($($name:ident($($type:ty),*) -> $result:ty = $value:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $type),*) -> $result {
                $value
            }
        )*
    };
}

refused! {
    ibv_import_device(c_int) -> *mut Context = pointer(Err(libc::EOPNOTSUPP));
    ibv_import_pd(*mut Context, u32) -> *mut Pd = pointer(Err(libc::EOPNOTSUPP));
    ibv_import_mr(*mut Pd, u32) -> *mut Mr = pointer(Err(libc::EOPNOTSUPP));
    ibv_import_dm(*mut Context, u32) -> *mut c_void = pointer(Err(libc::EOPNOTSUPP));
    ibv_unimport_pd(*mut Pd) -> () = ();
    ibv_unimport_mr(*mut Mr) -> () = ();
    ibv_unimport_dm(*mut c_void) -> () = ();
    ibv_reg_dmabuf_mr(*mut Pd, u64, usize, u64, c_int, c_int) -> *mut Mr = pointer(Err(libc::EOPNOTSUPP));
    // Of rdma-core 59: regions with attributes, and hints to a card about where what it writes is to go.
    ibv_reg_mr_ex(*mut Pd, *mut c_void) -> *mut Mr = pointer(Err(libc::EOPNOTSUPP));
    ibv_alloc_dmah(*mut Context, *mut c_void) -> *mut c_void = pointer(Err(libc::EOPNOTSUPP));
    ibv_dealloc_dmah(*mut c_void) -> c_int = libc::EOPNOTSUPP;
    // Of a message's bytes only the last word is known to be written last.
    ibv_query_qp_data_in_order(*mut Qp, c_int, u32) -> c_int = 0;
    ibv_set_ece(*mut Qp, *mut c_void) -> c_int = libc::EOPNOTSUPP;
    ibv_query_ece(*mut Qp, *mut c_void) -> c_int = libc::EOPNOTSUPP;
    // Memory is never pinned, so nothing has to be kept from a child.
    ibv_fork_init() -> c_int = 0;
    ibv_is_fork_initialized() -> c_int = 2;
}
