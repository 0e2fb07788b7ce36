//! A trace: a line for each request, completion and change of a queue pair, with the place in the program that asked for it.
//!
//! ```text
//! 81.000131 4711 qp 0x2: post 2: SEND 4096 bytes, signaled; pp_post_send (pingpong.c:312)
//! ```
//! That is seconds of the system's monotonic clock, the process, what happened, and where. A file whose name ends in `.jsonl` gets an
//! object a line instead. Lines are appended with one call each, so that the processes of a test may share a file.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Map, Value, json};
use verbs::decorate::{Event, Sink};
use verbs::{Op, SendFlags};

use crate::process::caller::{caller, place};

/// Where lines go.
pub(crate) struct Trace {
    file: File,
    as_json: bool,
}

impl Trace {
    /// Appends to a file.
    pub(crate) fn to(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Trace {
            file,
            as_json: path
                .extension()
                .is_some_and(|extension| extension == "jsonl"),
        })
    }
}

impl Sink for Trace {
    fn event(&self, event: Event) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
        let process = std::process::id();
        let caller = caller().map(place);
        let line = match self.as_json {
            true => {
                let mut object = object(&event);
                object.insert("seconds".into(), json!(seconds));
                object.insert("process".into(), json!(process));
                object.insert("caller".into(), json!(caller));
                format!("{}\n", Value::Object(object))
            }
            false => {
                let at = caller.map_or_else(String::new, |caller| format!("; {caller}"));
                format!("{seconds:.6} {process} {}{at}\n", text(&event))
            }
        };
        // A trace that cannot be written is no reason for a program to fail.
        let _ = (&self.file).write_all(line.as_bytes());
    }
}

/// An operation's name, and what it is about besides its bytes.
fn operation(op: &Op) -> (&'static str, Map<String, Value>) {
    let mut about = Map::new();
    let name = match op {
        Op::Send { .. } => "SEND",
        Op::Write { .. } => "WRITE",
        Op::Read { .. } => "READ",
        Op::CompareSwap { expect, swap, .. } => {
            about.insert("expect".into(), json!(expect));
            about.insert("swap".into(), json!(swap));
            "CMP_AND_SWP"
        }
        Op::FetchAdd { add, .. } => {
            about.insert("add".into(), json!(add));
            "FETCH_AND_ADD"
        }
        Op::SendInvalidate { rkey } => {
            about.insert("invalidates".into(), json!(rkey.0));
            "SEND_WITH_INV"
        }
        Op::BindWindow(bind) => {
            about.insert("window".into(), json!(bind.rkey.0));
            about.insert("lkey".into(), json!(bind.region.0));
            about.insert("addr".into(), json!(bind.addr));
            about.insert("bind_len".into(), json!(bind.len));
            "BIND_MW"
        }
        Op::LocalInvalidate { rkey } => {
            about.insert("window".into(), json!(rkey.0));
            "LOCAL_INV"
        }
    };
    let (remote, imm) = match op {
        Op::Send { imm } => (None, *imm),
        Op::Write { remote, imm } => (Some(*remote), *imm),
        Op::Read { remote } | Op::CompareSwap { remote, .. } | Op::FetchAdd { remote, .. } => {
            (Some(*remote), None)
        }
        Op::SendInvalidate { .. } | Op::BindWindow(_) | Op::LocalInvalidate { .. } => (None, None),
    };
    if let Some(remote) = remote {
        about.insert("remote_addr".into(), json!(remote.addr));
        about.insert("rkey".into(), json!(remote.rkey.0));
    }
    if let Some(imm) = imm {
        about.insert("imm".into(), json!(imm));
    }
    (name, about)
}

fn flag_names(flags: SendFlags) -> Vec<&'static str> {
    let names = [
        (SendFlags::SIGNALED, "signaled"),
        (SendFlags::FENCE, "fence"),
        (SendFlags::SOLICITED, "solicited"),
    ];
    let set = names.iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, name)| *name).collect()
}

/// An event as a line tells it.
fn text(event: &Event) -> String {
    let Event::Send {
        qp,
        id,
        op,
        len,
        flags,
    } = event
    else {
        return event.to_string();
    };
    let (name, about) = operation(op);
    let mut text = format!("qp {qp}: post {id}: {name} {len} bytes");
    if let (Some(addr), Some(rkey)) = (about.get("remote_addr"), about.get("rkey")) {
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        text += &format!(" at {:#x} of {:#x}", number(addr), number(rkey));
    }
    for flag in flag_names(*flags) {
        text += ", ";
        text += flag;
    }
    text
}

fn object(event: &Event) -> Map<String, Value> {
    let value = match event {
        Event::Send {
            qp,
            id,
            op,
            len,
            flags,
        } => {
            let (name, mut object) = operation(op);
            object.insert("event".into(), json!("post_send"));
            object.insert("qp".into(), json!(qp.0));
            object.insert("id".into(), json!(id));
            object.insert("op".into(), json!(name));
            object.insert("len".into(), json!(len));
            object.insert("flags".into(), json!(flag_names(*flags)));
            return object;
        }
        Event::Recv { qp, id, len } => {
            json!({"event": "post_recv", "qp": qp.0, "id": id, "len": len})
        }
        Event::SharedRecv { srq, id, len } => {
            json!({"event": "post_srq_recv", "srq": srq.0, "id": id, "len": len})
        }
        Event::Refused { qp, error } => json!({
            "event": "refused",
            "qp": qp.map(|qp| qp.0),
            "index": error.index,
            "why": error.reason.to_string(),
        }),
        Event::Completion { cq, wc } => json!({
            "event": "completion",
            "cq": cq.0,
            "qp": wc.qpn.0,
            "id": wc.id,
            "status": wc.status.to_string(),
            "opcode": format!("{:?}", wc.opcode),
            "len": wc.byte_len,
            "imm": wc.immediate(),
            "vendor_err": wc.vendor_err.0,
        }),
        Event::Overrun { cq } => json!({"event": "overrun", "cq": cq.0}),
        Event::Modify { qp, from, to, done } => json!({
            "event": "modify_qp",
            "qp": qp.0,
            "from": format!("{from:?}"),
            "to": format!("{to:?}"),
            "done": done,
        }),
        other => json!({"event": "other", "what": other.to_string()}),
    };
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
