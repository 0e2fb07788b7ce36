//! Power cuts at every step, damage at every place.

use block::Disk;
use block::sim::{Image, SimConfig, SimDevice};

use super::*;
use crate::Write;

type Transactions = Vec<Vec<Write>>;

fn device(seed: u64, image: Option<Image>) -> SimDevice {
    let config = SimConfig::new(seed, len_for(AREA_LEN_MIN));
    match image {
        Some(image) => SimDevice::with_image(config, image),
        None => SimDevice::new(config),
    }
}

fn open(device: &SimDevice) -> Result<Journal, JournalError> {
    let disk = Disk::open(device, 4)?;
    disk.block_on(Journal::open(disk.clone()))
}

fn formatted(seed: u64) -> SimDevice {
    let device = device(seed, None);
    let disk = Disk::open(&device, 4).expect("a disk");
    disk.block_on(Journal::format(&disk, 9))
        .expect("it is written");
    device
}

fn recover(device: &SimDevice, base: Base) -> Result<Transactions, JournalError> {
    let journal = open(device)?;
    let mut found = Transactions::new();
    let mut deliver = |record: Record| found.extend(record.transactions);
    let recovered = journal.recover(base.live, base.applied, &mut deliver);
    journal.disk().clone().block_on(recovered)?;
    Ok(found)
}

fn transaction(rng: &mut fastrand::Rng) -> Vec<Write> {
    let len = match rng.u8(..8) {
        0 | 1 => rng.usize(..400_000),
        2 => 0,
        _ => rng.usize(..100),
    };
    let key = rng.u64(..).to_le_bytes();
    match rng.u8(..6) {
        0 => vec![Write::Delete(key[..].into())],
        _ => vec![Write::Put(key[..].into(), vec![rng.u8(..); len].into())],
    }
}

/// What a database would say of itself.
#[derive(Clone, Copy, Debug)]
struct Base {
    applied: u64,
    live: u64,
}

/// A program that appends, and what was known after how many events of the device.
struct Program {
    device: SimDevice,
    all: Transactions,
    began: Vec<(u64, u64)>,
    ended: Vec<(u64, u64)>,
    bases: Vec<(u64, Base)>,
}

impl Program {
    fn run(device: SimDevice, first: Base, groups: usize, rng: &mut fastrand::Rng) -> Self {
        let mut program = Self {
            all: Vec::new(),
            began: vec![(0, first.applied)],
            ended: vec![(0, first.applied)],
            bases: vec![(0, first)],
            device,
        };
        let mut journal = open(&program.device).expect("it opens");
        journal.start(first.live);
        program.device.record();
        let mut pending = None;
        let mut composed = Composed::new();
        let mut revision = first.applied;
        for _ in 0..groups {
            composed.clear();
            for _ in 0..rng.usize(1..5) {
                let writes = transaction(rng);
                composed.add(&writes);
                program.all.push(writes);
            }
            let is_full = !journal.fits(composed.len());
            // The database has the last epoch's rows at some time before this one's are on their way.
            if let Some(base) = pending
                && (is_full || rng.u8(..8) == 0)
            {
                program.bases.push((program.device.events(), base));
                pending = None;
            }
            if is_full {
                let live = journal.epoch() + 1;
                let applied = revision;
                pending = Some(Base { applied, live });
                journal.start(live);
            }
            let first = revision + 1;
            revision += u64::from(composed.count());
            program.began.push((program.device.events(), revision));
            let disk = journal.disk().clone();
            let appended = disk.block_on(journal.append(&composed, first));
            appended.expect("nothing fails");
            program.ended.push((program.device.events(), revision));
        }
        program
    }
}

/// The last of what was so before an event.
fn before<T: Copy>(log: &[(u64, T)], event: u64) -> T {
    let log = log.iter().take_while(|(at, _)| *at < event);
    log.last().expect("one was there from the beginning").1
}

#[test]
fn a_power_cut_at_any_step_loses_nothing_that_was_acknowledged() {
    let mut torn = 0;
    let mut switched = 0;
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let first = Base {
            applied: 0,
            live: 2,
        };
        let program = Program::run(formatted(seed), first, 50, &mut rng);
        switched += program.bases.len() - 1;
        for snapshot in program.device.take_snapshots() {
            let event = snapshot.event();
            if event == 0 {
                continue;
            }
            let base = before(&program.bases, event);
            let after = device(seed, Some(snapshot.crash(rng.u64(..))));
            let found = recover(&after, base)
                .unwrap_or_else(|error| panic!("seed {seed}, event {event}: {error}"));
            let last = base.applied + found.len() as u64;
            let (low, high) = (before(&program.ended, event), before(&program.began, event));
            assert!(
                (low..=high).contains(&last),
                "seed {seed}, event {event}: {low} to {high} may be there, and {last} is"
            );
            let expected = &program.all[base.applied as usize..last as usize];
            assert_eq!(found, expected, "seed {seed}, event {event}");
            torn += u32::from(last == low && high > low);
            if rng.u8(..40) == 0 {
                check_second_life(after, base, last, seed, &mut rng);
            }
        }
    }
    assert!(
        torn > 10 && switched > 4,
        "{torn} torn, {switched} switched"
    );
}

/// After a recovery the journal is used on, over whatever the crash has left, and crashes again.
fn check_second_life(
    device_: SimDevice,
    base: Base,
    last: u64,
    seed: u64,
    rng: &mut fastrand::Rng,
) {
    let first = Base {
        applied: last,
        live: base.live + 2,
    };
    let program = Program::run(device_, first, 8, rng);
    let snapshots = program.device.take_snapshots();
    let snapshot = &snapshots[rng.usize(..snapshots.len())];
    let base = before(&program.bases, snapshot.event().max(1));
    let after = device(seed, Some(snapshot.crash(rng.u64(..))));
    let found = recover(&after, base).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let from = (base.applied - first.applied) as usize;
    assert_eq!(found, program.all[from..from + found.len()], "seed {seed}");
    assert!(base.applied + found.len() as u64 >= before(&program.ended, snapshot.event().max(1)));
}

#[test]
fn damage_before_the_last_record_is_an_error_and_never_a_silent_loss() {
    let device = formatted(1);
    let mut rng = fastrand::Rng::with_seed(1);
    let first = Base {
        applied: 0,
        live: 2,
    };
    let program = Program::run(device.clone(), first, 9, &mut rng);
    let base = before(&program.bases, u64::MAX);
    let used = open(&device)
        .map(|_| ())
        .and_then(|()| recover(&device, base));
    let whole = used.expect("it is sound");
    assert_eq!(whole, program.all);
    let area = BLOCK as u64;
    for _ in 0..300 {
        let (at, bit) = (rng.u64(area..area + 500_000), rng.u8(..8));
        device.flip_bit(at, bit);
        match recover(&device, base) {
            Ok(found) => {
                // Behind the records, or in the last of them, which may have been torn as well.
                let groups = &program.ended;
                let but_last = groups[groups.len() - 2].1 as usize;
                assert!(
                    found.len() >= but_last,
                    "a bit at {at}: {} left",
                    found.len()
                );
                assert_eq!(found, whole[..found.len()]);
            }
            Err(error) => {
                let is_damage = matches!(error, JournalError::Damaged { .. });
                assert!(is_damage, "a bit at {at}: {error}");
            }
        }
        device.flip_bit(at, bit);
    }
    assert_eq!(recover(&device, base).expect("it is sound again"), whole);
}

#[test]
fn every_bit_of_the_header_is_checked() {
    let device = formatted(2);
    for at in 0..BLOCK as u64 {
        let bit = (at % 8) as u8;
        device.flip_bit(at, bit);
        let error = open(&device).map(|_| ()).expect_err("it is damaged");
        let is_told = matches!(
            error,
            JournalError::Foreign { .. } | JournalError::Damaged { .. }
        );
        assert!(is_told, "byte {at}: {error}");
        device.flip_bit(at, bit);
    }
    open(&device).map(|_| ()).expect("it is sound again");
}

#[test]
fn every_failed_request_of_making_one_is_told() {
    use block::sim::Kind;
    use rustix::io::Errno;
    for pass in 0.. {
        let device = device(3, None);
        device.fail(Kind::Write, pass, Errno::IO);
        let disk = Disk::open(&device, 4).expect("a disk");
        let made = disk.block_on(Journal::format(&disk, 9));
        if device.faults_to_come() > 0 {
            made.expect("nothing failed");
            assert!(pass >= 5, "it is written in pieces");
            break;
        }
        assert!(matches!(made, Err(JournalError::Block(_))), "write {pass}");
        let opened = open(&device).map(|_| ());
        opened.expect_err("what was not made does not open");
    }
    let device = device(4, None);
    device.fail(Kind::Flush, 0, Errno::IO);
    let disk = Disk::open(&device, 4).expect("a disk");
    let made = disk.block_on(Journal::format(&disk, 9));
    assert!(matches!(made, Err(JournalError::Block(_))));
}
