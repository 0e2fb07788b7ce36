//! Asynchronous events.

use std::ffi::c_int;
use std::os::fd::AsFd;

use verbs::nic::AsyncEvent;

use crate::abi;
use crate::abi::errno::minus_one;
use crate::context::events;
use crate::context::opened::Opened;
use crate::context::sleep::wait_for;
use crate::queues::cq::Cq;
use crate::queues::qp::Qp;
use crate::queues::srq::Srq;

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
                Qp::of(*qp).has_srq().then(|| {
                    Qp::of(*qp).report();
                    abi::AsyncEvent {
                        element: qp.cast(),
                        event_type: abi::EVENT_QP_LAST_WQE_REACHED,
                    }
                })
            }),
            // SAFETY: as above.
            AsyncEvent::CqError(num) => objects.cqs.get(&num.0).map(|cq| unsafe {
                Cq::of(*cq).report();
                abi::AsyncEvent {
                    element: cq.cast(),
                    event_type: abi::EVENT_CQ_ERR,
                }
            }),
            // SAFETY: as above.
            AsyncEvent::SrqLimit(num) => objects.srqs.get(&num.0).map(|srq| unsafe {
                Srq::of(*srq).report();
                abi::AsyncEvent {
                    element: srq.cast(),
                    event_type: abi::EVENT_SRQ_LIMIT_REACHED,
                }
            }),
            // SAFETY: as above.
            AsyncEvent::QpCatastrophe(num) => objects.qps.get(&num.0).map(|qp| unsafe {
                Qp::of(*qp).report();
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
