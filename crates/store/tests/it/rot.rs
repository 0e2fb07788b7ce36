//! One flipped bit, one sector that is zero, one that is as it was before: at every kind of place of a
//! store's device. What a key shows then is right, or an error that names the damage, or nothing and
//! `check` counts damage; never what it had before, or what another one has.
//!
//! `VERVAIN_STORE_ALL=1` tries every sector of the images, and not only a spread.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

use block::sim::{Image, SimDevice};
use fastrand::Rng;
use store::examine::examine;
use store::{Options, Recovery, StoreError};

use super::allowed::{Allowed, NOW};
use super::cases::Cases;
use super::regions::{read, regions};
use super::world::{Workload, World, blank, open, options, shared, value, with_image, work_all};

const SECTOR: u64 = 512;
/// Places of each kind that are tried in the short form.
const SPREAD: usize = 6;

/// A store at its end, and what it was on the way there.
struct Aged {
    image: Image,
    allowed: Allowed,
    /// What the device held earlier.
    before: Vec<Image>,
    is_closed: bool,
    last: Option<Last>,
}

/// The batch that was acknowledged last of all before a crash. Nothing was written since: a device that has lost
/// a part of it holds the same bytes as one that was cut off while it wrote it.
struct Last {
    bytes: Range<u64>,
    /// What keys may show as if it had not been acknowledged.
    allowed: Allowed,
}

fn settings() -> Options {
    let mut options = options();
    options.live_share = 0.5;
    options
}

/// Puts, overwrites, deletes; segments that were given up and used again, moved records.
fn aged(is_closed: bool) -> &'static Aged {
    static AGED: [OnceLock<Aged>; 2] = [const { OnceLock::new() }; 2];
    AGED[usize::from(is_closed)].get_or_init(|| {
        let device = blank(7, 10);
        let mut world = World::open(&device, &settings(), 1).expect("a store");
        let mut allowed = Allowed::default();
        let mut before = vec![device.image()];
        for round in 0..8 {
            let of = Workload {
                seed: 100 + round,
                steps: 14,
                keys: 20,
                has_long: false,
                may_fail: false,
                is_cache: false,
            };
            allowed = work_all(&mut world, 4, of, allowed).expect("it works");
            world.rest();
            before.push(device.image());
        }
        assert!(world.store.stats().collected > 3);
        let mut last = None;
        if is_closed {
            world.close().expect("closed");
        } else {
            drop(world);
            // What was written at the end may be torn after a crash: rot there is taken for that. A
            // further opening ends it.
            let mut world = World::open(&device, &settings(), 1).expect("a store");
            let of = Workload {
                seed: 200,
                steps: 2,
                keys: 20,
                has_long: false,
                may_fail: false,
                is_cache: false,
            };
            allowed = work_all(&mut world, 1, of, allowed).expect("it works");
            let (key, session) = (b"0 3", world.sessions[0].clone());
            let new = value(key, 77, 3000);
            allowed.begin(key, Some(&new), device.events());
            let without = allowed.clone();
            let put = world.finish(session.put(key, &new)).expect("it ends");
            let version = put.expect("put").version;
            allowed.acknowledge(key, device.events());
            let mut at = None;
            let on_record = |record: store::examine::ExaminedRecord<'_>| {
                if record.version == version {
                    at = Some(record.at);
                }
            };
            let examined = examine(&shared(&device), |_, _| (), on_record).expect("a store");
            let layout = examined.superblock.layout;
            let start = at.expect("it is there") - layout.batch_start() as u64;
            last = Some(Last {
                bytes: start..start + u64::from(layout.blocks_of(3100)) * layout.block() as u64,
                allowed: without,
            });
            before.push(device.image());
        }
        Aged {
            image: device.image(),
            allowed,
            before,
            is_closed,
            last,
        }
    })
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Bit(u8),
    Zero,
    Stale,
}

const DAMAGES: [(&str, Damage); 3] = [
    ("a flipped bit", Damage::Bit(0)),
    ("a zeroed sector", Damage::Zero),
    ("a stale sector", Damage::Stale),
];

/// The image with one sector damaged; `None` if that changes nothing.
fn damaged(aged: &Aged, at: u64, damage: Damage, random: &mut Rng) -> Option<SimDevice> {
    let sector = at / SECTOR * SECTOR;
    let now = read(&aged.image, sector, SECTOR as usize);
    let mut bytes = now.clone();
    match damage {
        Damage::Bit(bit) => bytes[(at - sector) as usize] ^= 1 << bit,
        Damage::Zero => bytes.fill(0),
        Damage::Stale => {
            let older = aged
                .before
                .iter()
                .map(|image| read(image, sector, SECTOR as usize));
            let older: Vec<_> = older.filter(|older| *older != now).collect();
            bytes = random.choice(older)?;
        }
    }
    if bytes == now {
        return None;
    }
    let mut image = aged.image.clone();
    image.write(sector, &bytes);
    Some(with_image(1, image))
}

/// Opens a damaged store and asks for everything.
fn judge(allowed: &Allowed, device: &SimDevice) -> Result<(), String> {
    let examined = examine(&shared(device), |_, _| (), |_| ());
    let examined = examined.map_err(|error| format!("it cannot be checked: {error}"))?;
    let is_counted = !examined.is_sound();
    let store = open(device, &settings()).map_err(|error| format!("it does not open: {error}"))?;
    let is_counted_later = match store.recovery() {
        Recovery::Log { damaged, .. } => damaged > 0,
        _ => false,
    };
    let mut shown = BTreeMap::new();
    for key in allowed.keys() {
        let name = String::from_utf8_lossy(key);
        match store.get(key) {
            Ok(None) if is_counted || is_counted_later => {}
            Ok(found) => {
                let judged = allowed.judge(key, found.as_deref(), NOW);
                judged.map_err(|error| format!("counted {is_counted}: {error}"))?;
                shown.insert(key, found.is_some());
            }
            Err(StoreError::Damaged { .. } | StoreError::MaybeOld { .. }) if is_counted => {}
            Err(error @ StoreError::Damaged { .. }) => {
                return Err(format!("check says sound, but {name}: {error}"));
            }
            Err(error) => return Err(format!("key {name}: {error}")),
        }
    }
    let mut wrong = Ok(());
    let visited = store.for_each(|seen| {
        wrong = allowed.judge(seen.key, Some(seen.value), NOW);
        match &wrong {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    wrong.map_err(|error| format!("visited: {error}"))?;
    if let Err(error) = visited
        && !is_counted
    {
        return Err(format!("check says sound, but visiting all: {error}"));
    }
    Ok(())
}

fn rot(is_closed: bool) {
    let mut cases = Cases::of(if is_closed {
        "rot, closed"
    } else {
        "rot, crashed"
    });
    let aged = aged(is_closed);
    let device = with_image(1, aged.image.clone());
    let found = regions(&device);
    let store = open(&device, &settings()).expect("it opens");
    assert_eq!(store.recovery() == Recovery::Closed, aged.is_closed);
    drop(store);
    let device = with_image(1, aged.image.clone());
    judge(&aged.allowed, &device).expect("without damage all is right");
    let mut kinds: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for region in found {
        kinds.entry(region.name).or_default().push(region.bytes);
    }
    let tries_all = std::env::var_os("VERVAIN_STORE_ALL").is_some();
    let mut random = Rng::with_seed(3);
    let mut kinds_tried = BTreeSet::new();
    for (kind, places) in kinds {
        for (name, damage) in DAMAGES {
            let mut places = places.clone();
            random.shuffle(&mut places);
            let mut tried = 0;
            // Where there are few places, several bytes of each.
            let again = SPREAD.div_ceil(places.len().max(1));
            let all = places.iter().cycle().take(places.len() * again);
            for place in all.cloned() {
                let at = random.u64(place);
                let damage = match damage {
                    Damage::Bit(_) => Damage::Bit(random.u8(..8)),
                    other => other,
                };
                let Some(device) = damaged(aged, at, damage, &mut random) else {
                    continue;
                };
                cases.run(&format!("{name}, {kind}"), || {
                    let told = |error| format!("in {kind}, {damage:?} at {at}: {error}");
                    let last = aged.last.as_ref();
                    let allowed = match last.filter(|last| last.bytes.contains(&at)) {
                        Some(last) => &last.allowed,
                        None => &aged.allowed,
                    };
                    judge(allowed, &device).map_err(told)
                });
                kinds_tried.insert((name, kind));
                tried += 1;
                if tried == SPREAD && !tries_all {
                    break;
                }
            }
        }
    }
    assert!(kinds_tried.len() > 25, "{} kinds of rot", kinds_tried.len());
    cases.end();
}

#[test]
fn rot_in_a_store_that_was_closed_shows_nothing_wrong() {
    rot(true);
}

#[test]
fn rot_in_a_store_that_crashed_shows_nothing_wrong() {
    rot(false);
}
