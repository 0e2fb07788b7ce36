//! A disk is an array of bytes.

use block::sim::{Rates, SimConfig, SimDevice};
use block::{Device, Disk, Durable, Engine, Striped};
use proptest::prelude::*;

use super::{dir, disk, file};

const LEN: u64 = 256 << 10;

#[derive(Clone, Debug)]
enum Step {
    Read {
        at: u64,
        blocks: usize,
    },
    Write {
        at: u64,
        blocks: usize,
        byte: u8,
        durable: bool,
    },
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (0..LEN / 4096, 1..20usize);
    let step = prop_oneof![
        4 => place.clone().prop_map(|(at, blocks)| Step::Read { at: at * 4096, blocks }),
        4 => (place, any::<u8>(), any::<bool>()).prop_map(|((at, blocks), byte, durable)| {
            Step::Write { at: at * 4096, blocks, byte, durable }
        }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..40)
}

/// Runs the steps one after the other, and checks each read.
fn check(disk: &Disk, model: &mut [u8], steps: &[Step]) {
    disk.block_on(async {
        for step in steps {
            match *step {
                Step::Read { at, blocks } => {
                    let len = blocks * 4096;
                    let (result, buf) = disk.read(disk.buffer(len), at).await;
                    match model.get(at as usize..at as usize + len) {
                        Some(bytes) => {
                            result.unwrap();
                            assert!(&buf[..] == bytes, "{step:?}");
                        }
                        None => assert!(result.is_err(), "{step:?}"),
                    }
                }
                Step::Write {
                    at,
                    blocks,
                    byte,
                    durable,
                } => {
                    let len = blocks * 4096;
                    let mut buf = disk.buffer(len);
                    for (index, place) in buf.iter_mut().enumerate() {
                        *place = byte.wrapping_add((index / 512) as u8);
                    }
                    let durable = if durable { Durable::Yes } else { Durable::No };
                    let (result, buf) = disk.write(buf, at, durable).await;
                    match model.get_mut(at as usize..at as usize + len) {
                        Some(bytes) => {
                            result.unwrap();
                            bytes.copy_from_slice(&buf);
                        }
                        None => assert!(result.is_err(), "{step:?}"),
                    }
                }
                Step::Flush => disk.flush().await.unwrap(),
            }
        }
    });
}

fn run(device: &dyn Device, depth: usize, steps: &[Step]) {
    let disk = disk(device, depth);
    let mut model = vec![0; LEN as usize];
    check(&disk, &mut model, steps);
    let (result, buf) = disk.block_on(disk.read(disk.buffer(model.len()), 0));
    result.unwrap();
    assert!(buf[..] == model[..], "the whole device");
}

/// A simulated device whose rules are as awkward as they come, and which interrupts a lot.
fn awkward(seed: u64, len: u64, boundary: Option<u64>) -> SimDevice {
    let mut config = SimConfig::new(seed, len);
    config.geometry.io_max = 12288;
    config.geometry.boundary = boundary;
    config.rates = Rates {
        short: 0.3,
        again: 0.2,
        ..Rates::default()
    };
    SimDevice::new(config)
}

/// Three parts of unequal length, of which 64 stripes of 4 KiB each are the same length as the model.
fn striped(unit: u32, mut part: impl FnMut(u64) -> Box<dyn Device>) -> Striped {
    // Each has a label and its copy behind its stripes.
    let mut part = |len| part(len / 4 + u64::from(unit).max(1024));
    let parts = [LEN, LEN + 4096, LEN + 100 * 4096].map(&mut part);
    let extra = part(LEN);
    Striped::format(parts.into_iter().chain([extra]).collect(), unit, 1, false).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_engine_behaves_like_memory(steps in steps(), depth in 1usize..9) {
        for engine in Engine::ALL {
            let dir = dir();
            let (_, device) = file(&dir, LEN, engine);
            run(&device, depth, &steps);
        }
    }

    #[test]
    fn a_simulated_device_behaves_like_memory(
        steps in steps(),
        depth in 1usize..9,
        seed: u64,
        boundary in prop_oneof![Just(None), Just(Some(8192))],
    ) {
        run(&awkward(seed, LEN, boundary), depth, &steps);
    }

    #[test]
    fn stripes_behave_like_memory(steps in steps(), depth in 1usize..9, seed: u64) {
        for unit in [512, 4096, 16384] {
            let device = striped(unit, |len| Box::new(awkward(seed, len, None)));
            run(&device, depth, &steps);
        }
    }
}

#[test]
fn files_are_striped() {
    for engine in Engine::ALL {
        let dirs: Vec<_> = (0..4).map(|_| dir()).collect();
        let mut next = dirs.iter();
        let device = striped(4096, |len| {
            Box::new(file(next.next().unwrap(), len, engine).1)
        });
        let steps: Vec<_> = (0..16)
            .map(|index| Step::Write {
                at: index * 4096 * 3,
                blocks: 1 + index as usize % 5,
                byte: index as u8,
                durable: index % 2 == 0,
            })
            .chain([Step::Flush, Step::Read { at: 0, blocks: 50 }])
            .collect();
        run(&device, 4, &steps);
        // Where each byte is, is part of the format.
        drop(device);
        let parts: Vec<_> = dirs
            .iter()
            .map(|dir| std::fs::read(dir.path().join("disk")).unwrap())
            .collect();
        for chunk in 0..16u8 {
            let (step, nth) = (chunk / 3, chunk % 3);
            if nth < 1 + step % 5 {
                let part = &parts[usize::from(chunk % 4)];
                let byte = part[usize::from(chunk / 4) * 4096];
                assert_eq!(byte, step + nth * 8, "chunk {chunk}");
            }
        }
    }
}
