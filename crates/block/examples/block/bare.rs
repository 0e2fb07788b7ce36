//! The same load through the ring itself: the most that a program can get.

use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Instant;

use block::Durable;
use io_uring::types::Fixed;
use io_uring::{IoUring, opcode};

use crate::{Load, Meter, Speed};

/// When the kernel runs the last part of a completion.
#[derive(Clone, Copy)]
pub(crate) enum Setup {
    /// At once, interrupting the program.
    Plain,
    /// With the next change into the kernel, whatever it is for.
    Cooperative,
    /// When the program enters the ring.
    Deferred,
}

#[derive(Clone, Copy)]
pub(crate) struct Bare {
    pub(crate) setup: Setup,
    pub(crate) registered: bool,
}

pub(crate) fn run(bare: Bare, path: &str, load: Load) -> Speed {
    let mut builder = IoUring::<io_uring::squeue::Entry>::builder();
    match bare.setup {
        Setup::Plain => {}
        Setup::Cooperative => {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        Setup::Deferred => {
            builder.setup_coop_taskrun().setup_taskrun_flag();
            builder.setup_single_issuer().setup_defer_taskrun();
        }
    }
    let mut ring: IoUring = builder.build(load.depth as u32).expect("a ring");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .expect("the file opens");
    let submitter = ring.submitter();
    submitter
        .register_files(&[file.as_raw_fd()])
        .expect("a registered file");
    let layout = std::alloc::Layout::from_size_align(load.depth * load.len, 2 << 20);
    let layout = layout.expect("a layout");
    // SAFETY: the size is not zero.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!memory.is_null());
    let region = [libc::iovec {
        iov_base: memory.cast(),
        iov_len: layout.size(),
    }];
    if bare.registered {
        // SAFETY: the memory is freed after the ring.
        unsafe { submitter.register_buffers(&region) }.expect("registered buffers");
    }

    let meter = Meter::new(load);
    let mut begins = vec![Instant::now(); load.depth];
    let mut ready: Vec<usize> = (0..load.depth).collect();
    let mut is_over = false;
    let mut in_flight = 0;
    loop {
        let mut queue = ring.submission();
        for slot in ready.drain(..) {
            in_flight += 1;
            // SAFETY: slots are below the depth.
            let memory = unsafe { memory.add(slot * load.len) };
            let entry = entry(bare, load, memory, meter.place());
            // SAFETY: the memory is freed after the ring.
            unsafe { queue.push(&entry.user_data(slot as u64)) }.expect("room");
        }
        let count = in_flight;
        let must_enter = !queue.is_empty() || queue.taskrun();
        drop(queue);
        if must_enter {
            ring.submit().expect("submitted");
        }
        for entry in ring.completion() {
            assert_eq!(entry.result(), load.len as i32);
            in_flight -= 1;
            let slot = entry.user_data() as usize;
            is_over |= !meter.note(&mut begins[slot]);
            ready.push(slot);
        }
        meter
            .idle
            .borrow_mut()
            .note(!must_enter && in_flight == count);
        if is_over {
            ready.clear();
            if in_flight == 0 {
                break;
            }
        }
    }
    drop(ring);
    // SAFETY: allocated above with this layout; the ring has gone.
    unsafe { std::alloc::dealloc(memory, layout) };
    meter.speed()
}

fn entry(bare: Bare, load: Load, memory: *mut u8, at: u64) -> io_uring::squeue::Entry {
    let (file, len) = (Fixed(0), load.len as u32);
    let flags = match load.write {
        Some(Durable::Yes) => libc::RWF_DSYNC,
        _ => 0,
    };
    match (load.write, bare.registered) {
        (None, false) => opcode::Read::new(file, memory, len).offset(at).build(),
        (None, true) => opcode::ReadFixed::new(file, memory, len, 0)
            .offset(at)
            .build(),
        (Some(_), false) => opcode::Write::new(file, memory, len)
            .offset(at)
            .rw_flags(flags)
            .build(),
        (Some(_), true) => opcode::WriteFixed::new(file, memory, len, 0)
            .offset(at)
            .rw_flags(flags)
            .build(),
    }
}
