//! Opening and closing the device, and what a context offers its program.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use nic_soft::SoftNic;

use super::query::{query_device_ex, query_port};
use crate::abi;
use crate::abi::errno::{Errno, errno_of, pointer};
use crate::around::around;
use crate::context::opened::Opened;
use crate::context::sleep::readable_with;
use crate::memory::{domain, region, window};
use crate::process::{complain, settings};
use crate::queues::{bind, cq, cq_ex, post, qp_ex, srq};

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
    let around = around(nic).map_err(|why| {
        complain("cannot open the device", &why);
        libc::EINVAL
    })?;
    let events = readable_with(around.nic.async_fd().ok_or(libc::EIO)?)?;
    let context = abi::Context {
        device,
        ops: operations(),
        cmd_fd: events.as_raw_fd(),
        async_fd: events.as_raw_fd(),
        num_comp_vectors: std::thread::available_parallelism()
            .map_or(1, |cpus| cpus.get() as c_int),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: abi::IS_EXTENDED,
    };
    Ok(Opened::make(around, events, extended(context)))
}

/// What programs call by way of their context.
fn operations() -> abi::ContextOps {
    abi::ContextOps {
        _before_alloc_mw: [None; 7],
        alloc_mw: Some(window::alloc_mw),
        bind_mw: Some(bind::bind_mw),
        dealloc_mw: Some(window::dealloc_mw),
        _compat_create_cq: None,
        poll_cq: Some(cq::poll),
        req_notify_cq: Some(cq::req_notify),
        _before_post_srq_recv: [None; 7],
        post_srq_recv: Some(srq::post_srq_recv),
        _before_post_send: [None; 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        _after_post_recv: [None; 5],
    }
}

/// What newer programs call besides, in front of the context.
fn extended(context: abi::Context) -> abi::VerbsContext {
    abi::VerbsContext {
        query_port: Some(query_port),
        query_device_ex: Some(query_device_ex),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        create_qp_ex: Some(qp_ex::create_qp_ex),
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
        query_rt_values: Some(cq_ex::query_rt_values),
        _before_create_qp_ex: [None; 5],
        _unused: 0,
        sz: size_of::<abi::VerbsContext>(),
        context,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut abi::Context) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Opened::of(context) }.is_inherited() {
        return 0;
    }
    // SAFETY: made by `open`, and of no more use to anybody.
    unsafe { Opened::end(context) };
    0
}
