//! Several devices as one, beyond holding bytes (see `model.rs`).

use std::sync::{Arc, Mutex};

use block::sim::{Kind, SimConfig, SimDevice};
use block::{BlockError, Device, Done, Durable, Geometry, Op, Queue, Region, Request, Striped};
use rt::Arm;
use rustix::io::Errno;

use super::disk;

fn parts(lens: &[u64]) -> Vec<SimDevice> {
    let part = |(index, &len): (usize, &u64)| {
        let mut config = SimConfig::new(index as u64, len);
        config.name = format!("part{index}").into();
        SimDevice::new(config)
    };
    lens.iter().enumerate().map(part).collect()
}

fn striped(parts: &[SimDevice], unit: u32) -> Result<Striped, BlockError> {
    Striped::format(boxed(parts), unit, 1, false)
}

fn boxed(parts: &[SimDevice]) -> Vec<Box<dyn Device>> {
    let part = |part: &SimDevice| -> Box<dyn Device> { Box::new(part.clone()) };
    parts.iter().map(part).collect()
}

/// Whatever the order in which the devices are given; and no others are taken for them.
#[test]
fn the_devices_of_a_set_find_their_order() {
    let parts = parts(&[1 << 20; 3]);
    let write = |device: Striped| {
        let disk = disk(&device, 4);
        disk.block_on(async {
            let mut buf = disk.buffer(9 * 4096);
            for (number, stripe) in buf.chunks_mut(4096).enumerate() {
                stripe.fill(number as u8 + 1);
            }
            disk.write(buf, 0, Durable::Yes).await.0.unwrap();
        });
    };
    write(striped(&parts, 4096).unwrap());
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
        let given: Vec<_> = order.iter().map(|&i| parts[i].clone()).collect();
        let device = Striped::open(boxed(&given)).unwrap();
        assert_eq!(&*device.name(), "part0+part1+part2");
        let disk = disk(&device, 4);
        let (result, buf) = disk.block_on(disk.read(disk.buffer(9 * 4096), 0));
        result.unwrap();
        for (number, stripe) in buf.chunks(4096).enumerate() {
            assert!(stripe.iter().all(|&byte| usize::from(byte) == number + 1));
        }
    }
    let refuses = |given: &[&SimDevice], why: &str| {
        let given: Vec<_> = given.iter().map(|&part| part.clone()).collect();
        let error = Striped::open(boxed(&given)).err().unwrap().to_string();
        assert!(error.ends_with(why), "{error}");
    };
    let others = self::parts(&[1 << 20; 3]);
    refuses(
        &[&parts[0], &parts[1], &others[2]],
        "part2 belongs to no set",
    );
    Striped::format(boxed(&others), 4096, 2, false).unwrap();
    refuses(
        &[&parts[0], &parts[1], &others[2]],
        "part2 belongs to another set",
    );
    refuses(&[&parts[0], &parts[1]], "the set has 3 devices, not 2");
    refuses(
        &[&parts[0], &parts[1], &parts[1]],
        "device 2 of the set is missing",
    );
    refuses(&[], "there is no device to stripe over");
    // Its label is in its last block, and the copy before it.
    parts[2].flip_bit((1 << 20) - 512 + 20, 3);
    assert!(Striped::open(boxed(&parts)).is_ok());
    parts[2].flip_bit((1 << 20) - 1024 + 20, 3);
    refuses(
        &[&parts[0], &parts[1], &parts[2]],
        "part2 belongs to no set",
    );
    let error = striped(&others, 4096).err().unwrap().to_string();
    assert!(error.ends_with("part0 belongs to a set already"), "{error}");
}

#[test]
fn a_device_that_is_in_use_is_made_a_part_only_by_force() {
    for at in [0, 1 << 19, (1 << 20) - 1] {
        let parts = parts(&[1 << 20; 2]);
        parts[1].flip_bit(at, 0);
        let error = striped(&parts, 4096).err().unwrap().to_string();
        assert!(
            error.ends_with(&format!(
                "part1 is not empty: there is something at byte {at}"
            )),
            "{error}"
        );
        let blank = |part: &SimDevice| part.totals().writes == 0;
        assert!(parts.iter().all(blank), "nothing is written");
        Striped::format(boxed(&parts), 4096, 1, true).unwrap();
        assert!(Striped::open(boxed(&parts)).is_ok());
    }
}

#[test]
fn a_flush_reaches_all_parts_and_any_may_fail_it() {
    let parts = parts(&[1 << 20; 3]);
    let disk = disk(&striped(&parts, 4096).unwrap(), 4);
    disk.block_on(async {
        let mut buf = disk.buffer(3 * 4096);
        buf.fill(1);
        disk.write(buf, 0, Durable::No).await.0.unwrap();
        // Two at once: each ends for itself.
        let (first, second) = (disk.flush(), disk.flush());
        first.await.unwrap();
        second.await.unwrap();
    });
    for part in &parts {
        assert_eq!(part.totals().flushes, 2);
        assert_eq!(part.totals().writes, 3, "its label, twice, and its part");
        let mut byte = [0];
        part.snapshot().crash(0).read(4095, &mut byte);
        assert_eq!(byte, [1], "durable on each");
    }
    parts[1].fail(Kind::Flush, 0, Errno::IO);
    let error = disk.block_on(disk.flush()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "flush of 0 bytes at 0 on part0+part1+part2 failed"
    );
    disk.block_on(disk.flush()).unwrap();
}

#[test]
fn a_long_transfer_uses_all_parts_at_once() {
    let parts = parts(&[1 << 20; 4]);
    let device = striped(&parts, 65536).unwrap();
    let disk = disk(&device, 16);
    let before: Vec<_> = parts.iter().map(SimDevice::totals).collect();
    disk.block_on(disk.read(disk.buffer(1 << 20), 65536))
        .0
        .unwrap();
    for (part, before) in parts.iter().zip(before) {
        assert_eq!(part.totals().read_bytes - before.read_bytes, 1 << 18);
        assert_eq!(part.totals().reads - before.reads, 4);
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let says = |lens: &[u64], unit| {
        let Err(error) = striped(&parts(lens), unit) else {
            panic!("stripes of {unit} over {lens:?}");
        };
        error.to_string()
    };
    let long = 1 << 20;
    assert!(says(&[], 4096).ends_with("there is no device to stripe over"));
    assert!(says(&[long], 0).ends_with("a stripe of 0 bytes is not a multiple of 512"));
    assert!(says(&[long, long], 700).ends_with("a stripe of 700 bytes is not a multiple of 512"));
    assert!(says(&[long, 4096], 8192).ends_with("part1 is shorter than a stripe of 8192 bytes"));
    // Stripes of stripes have to fit into each other.
    let inner = striped(&parts(&[long, long]), 12288).unwrap();
    let error = Striped::format(vec![Box::new(inner)], 8192, 2, false)
        .err()
        .unwrap();
    assert!(error.to_string().contains("does not divide"), "{error}");
}

#[test]
fn the_shortest_part_bounds_all() {
    let device = striped(&parts(&[1 << 20, 10 * 4096 + 1024, 1 << 21]), 4096).unwrap();
    assert_eq!(device.geometry().len, 30 * 4096);
}

/// A device that numbers the memory that it is told of in a way of its own.
struct Registers {
    device: SimDevice,
    first: u16,
    seen: Arc<Mutex<Vec<Option<Region>>>>,
}

struct RegistersQueue {
    queue: Box<dyn Queue>,
    next: u16,
    seen: Arc<Mutex<Vec<Option<Region>>>>,
}

impl Device for Registers {
    fn name(&self) -> Arc<str> {
        self.device.name()
    }
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(RegistersQueue {
            queue: self.device.queue(depth)?,
            next: self.first,
            seen: Arc::clone(&self.seen),
        }))
    }
}

// SAFETY: the inner queue keeps the promise; this one looks at numbers alone.
unsafe impl Queue for RegistersQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        let mut seen = self.seen.lock().unwrap();
        seen.extend(requests.iter().map(|request| request.region));
        // SAFETY: the caller's promise.
        unsafe { self.queue.submit(requests) };
    }
    fn poll(&mut self, done: &mut [Done]) -> usize {
        self.queue.poll(done)
    }
    fn arm(&mut self) -> Arm<'_> {
        self.queue.arm()
    }
    fn disarm(&mut self) {
        self.queue.disarm();
    }
    unsafe fn register(&mut self, _memory: *mut u8, _len: usize) -> Option<Region> {
        self.next += 1;
        Some(Region(self.next))
    }
}

#[repr(align(4096))]
struct Pages([u8; 8192]);

#[test]
fn each_part_hears_of_registered_memory_by_its_own_number() {
    let seen = [Arc::default(), Arc::default()];
    let devices = parts(&[1 << 20; 2]).into_iter().zip([10, 20]).zip(&seen);
    let device = |((device, first), seen): ((_, _), &Arc<Mutex<Vec<Option<Region>>>>)| {
        let seen = Arc::clone(seen);
        let device: Box<dyn Device> = Box::new(Registers {
            device,
            first,
            seen,
        });
        device
    };
    let device = Striped::format(devices.map(device).collect(), 4096, 1, false).unwrap();
    let mut pages = Box::new(Pages([7; 8192]));
    let mut queue = device.queue(4).unwrap();
    let memory = pages.0.as_mut_ptr();
    // SAFETY: the memory outlives the queue.
    let regions = [(); 2].map(|()| unsafe { queue.register(memory, 8192) }.unwrap());
    seen.iter().for_each(|seen| seen.lock().unwrap().clear());
    let request = |token: u64, region: Region| Request {
        token,
        op: Op::Write(Durable::No),
        at: token * 4096,
        memory,
        len: 4096,
        region: Some(region),
    };
    // SAFETY: nobody touches the memory until both have ended.
    unsafe { queue.submit(&[request(0, regions[1]), request(1, regions[0])]) };
    let mut ended = 0;
    while ended < 2 {
        ended += queue.poll(
            &mut [Done {
                token: 0,
                result: Ok(0),
            }; 2],
        );
    }
    let heard = seen.map(|seen| seen.lock().unwrap().clone());
    assert_eq!(heard, [vec![Some(Region(12))], vec![Some(Region(21))]]);
}
