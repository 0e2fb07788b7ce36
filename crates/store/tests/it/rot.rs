//! One flipped bit, one sector that is zero, one that is as it was before: at every kind of place of a
//! store's device. What a key shows then is right, or an error that names the damage, or nothing if a record of it stands
//! in the damaged sector and `check` names that; never what it had before, or what another one has.
//!
//! `VERVAIN_STORE_ALL=1` tries every sector of the images, and not only a spread.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

use block::sim::{Image, SimDevice};
use fastrand::Rng;
use store::examine::{Examined, examine};
use store::format::record::Record;
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
    /// Where each record and tombstone stands, and whose it is.
    records: Vec<(Range<u64>, Vec<u8>)>,
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
            records: records(&device),
        }
    })
}

fn records(device: &SimDevice) -> Vec<(Range<u64>, Vec<u8>)> {
    let mut records = Vec::new();
    let on_record = |found: store::examine::ExaminedRecord<'_>| {
        let record = Record {
            meta: found.meta,
            key: found.key,
            value: &vec![0; found.value_len],
        };
        let end = found.at + record.encoded_len() as u64;
        records.push((found.at..end, found.key.to_vec()));
    };
    examine(&shared(device), |_, _| (), on_record).expect("a store");
    records
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Aged {
    /// Whether a key may be missing of which nobody knows that it is lost: a record of it stands in the damaged sector, and
    /// in a stretch that `check` names.
    fn may_miss(&self, key: &[u8], sector: &Range<u64>, examined: &Examined) -> bool {
        let layout = examined.superblock.layout;
        let named = examined.segments.iter().flat_map(|segment| {
            let start = layout.segment_at(segment.segment);
            let at = move |block| start + u64::from(block) * layout.block() as u64;
            let stretches = segment.flaws.iter().map(|flaw| &flaw.blocks);
            stretches.map(move |blocks| at(blocks.start)..at(blocks.end))
        });
        let named: Vec<Range<u64>> = named.filter(|stretch| overlap(stretch, sector)).collect();
        let of_key = self.records.iter().filter(|(_, whose)| whose == key);
        let mut lost = of_key.filter(|(bytes, _)| overlap(bytes, sector));
        lost.any(|(bytes, _)| named.iter().any(|stretch| overlap(stretch, bytes)))
    }
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

/// What a damage may cost, by what it is and where: see the table in `docs/design/store.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// There is another one of it, or the log says the same.
    Nothing,
    /// So many keys are errors.
    Keys(usize),
    /// Nobody knows whose records are lost.
    Any,
}

impl Cost {
    fn of(kind: &str, damage: Damage) -> Self {
        let is_bit = matches!(damage, Damage::Bit(_));
        match kind {
            "a batch's header" if is_bit => Self::Nothing,
            "a batch's header" => Self::Any,
            _ if kind.starts_with("a record's") || kind.starts_with("a tombstone's") => {
                Self::of_record(is_bit)
            }
            "a key" | "a value" => Self::of_record(is_bit),
            // Headers, superblocks, what is free, and the index.
            _ => Self::Nothing,
        }
    }

    fn of_record(is_bit: bool) -> Self {
        if is_bit { Self::Keys(1) } else { Self::Any }
    }
}

/// Opens a store one of whose sectors is damaged, and asks for everything.
fn judge(
    aged: &Aged,
    allowed: &Allowed,
    device: &SimDevice,
    (cost, sector): (Cost, &Range<u64>),
) -> Result<(), String> {
    let examined = examine(&shared(device), |_, _| (), |_| ());
    let examined = examined.map_err(|error| format!("it cannot be checked: {error}"))?;
    let is_counted = !examined.is_sound();
    let store = open(device, &settings()).map_err(|error| format!("it does not open: {error}"))?;
    let mut refused = 0;
    for key in allowed.keys() {
        let name = String::from_utf8_lossy(key);
        match store.get(key) {
            Ok(None) if cost == Cost::Any && aged.may_miss(key, sector, &examined) => {}
            Ok(found) => {
                let judged = allowed.judge(key, found.as_deref(), NOW);
                judged.map_err(|error| format!("counted {is_counted}: {error}"))?;
            }
            Err(StoreError::Damaged { .. } | StoreError::MaybeOld { .. }) if is_counted => {
                refused += 1;
            }
            Err(error @ StoreError::Damaged { .. }) => {
                return Err(format!("check says sound, but {name}: {error}"));
            }
            Err(error) => return Err(format!("key {name}: {error}")),
        }
    }
    let may_be_refused = match cost {
        Cost::Nothing => 0,
        Cost::Keys(keys) => keys,
        Cost::Any => usize::MAX,
    };
    if refused > may_be_refused {
        return Err(format!(
            "{refused} keys are refused, and {cost:?} is to be lost"
        ));
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
        && (!is_counted || cost == Cost::Nothing)
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
    judge(aged, &aged.allowed, &device, (Cost::Nothing, &(0..0)))
        .expect("without damage all is right");
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
                    let sector = at / SECTOR * SECTOR;
                    let sector = sector..sector + SECTOR;
                    judge(aged, allowed, &device, (Cost::of(kind, damage), &sector)).map_err(told)
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

/// A bit of each of two records that stand side by side.
fn rot_of_neighbours(is_closed: bool) {
    let mut cases = Cases::of(if is_closed {
        "neighbours, closed"
    } else {
        "neighbours, crashed"
    });
    let aged = aged(is_closed);
    let mut records: Vec<Range<u64>> = Vec::new();
    for region in regions(&with_image(1, aged.image.clone())) {
        let is_header = ["a record's header", "a tombstone's header"].contains(&region.name);
        let is_part = ["a key", "a value", "a tombstone's key"].contains(&region.name);
        match records.last_mut() {
            _ if is_header => records.push(region.bytes),
            Some(last) if is_part && last.end == region.bytes.start => last.end = region.bytes.end,
            _ => {}
        }
    }
    let is_last = |bytes: &Range<u64>| {
        let last = aged.last.as_ref();
        last.is_some_and(|last| last.bytes.contains(&bytes.start))
    };
    let mut random = Rng::with_seed(4);
    let mut tried = 0;
    for pair in records.windows(2) {
        let [one, other] = pair else { continue };
        // Grains are four bytes.
        if other.start - one.end >= 4 || is_last(one) || is_last(other) {
            continue;
        }
        let flips = [one, other].map(|bytes| (random.u64(bytes.clone()), random.u8(..8)));
        let device = with_image(1, aged.image.clone());
        flips.iter().for_each(|&(at, bit)| device.flip_bit(at, bit));
        cases.run("two records", || {
            let told = |error| format!("bits {flips:?}: {error}");
            judge(aged, &aged.allowed, &device, (Cost::Keys(2), &(0..0))).map_err(told)
        });
        tried += 1;
    }
    assert!(tried > 20, "{tried} pairs");
    cases.end();
}

#[test]
fn rot_of_two_neighbours_costs_two_keys_at_most() {
    rot_of_neighbours(true);
    rot_of_neighbours(false);
}
