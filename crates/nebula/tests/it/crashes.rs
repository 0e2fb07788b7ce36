//! Power is cut at every step of random programs: what was acknowledged as durable is there, and what is
//! there is a prefix of what was asked for.

use std::cell::RefCell;
use std::rc::Rc;

use block::Durable;
use nebula::streams::StreamServer;
use nebula::{Epoch, StreamId};
use rt::Handle;

use super::rig::{Rig, Seen, record, replayed};

/// What a program was told so far.
#[derive(Clone, Debug, Default)]
struct Told {
    stream: Option<StreamId>,
    epoch: u64,
    /// Appends that were acknowledged.
    appended: Vec<Seen>,
    /// The first so many records are promised to survive.
    durable: usize,
}

/// Appends records of random lengths, some at the same time, some durable; flushes and takes over.
async fn program(server: StreamServer, handle: Handle, seed: u64, told: Rc<RefCell<Told>>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let stream = server.create().await.expect("created");
    told.borrow_mut().stream = Some(stream);
    told.borrow_mut().epoch = 1;
    let open = server.open_for_writing(stream, Epoch(1));
    let mut writer = open.await.expect("opened");
    let mut number = 0;
    for _ in 0..12 {
        let mut batch = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let pages = rng.u32(0..5);
            let durable = if rng.bool() {
                Durable::Yes
            } else {
                Durable::No
            };
            let append = writer.append(record(&writer, number, pages), durable);
            batch.push((number, pages, durable, append));
            number += 1;
            if rng.bool() {
                // The next one is of another turn, and so of another frame.
                handle.yield_now().await;
            }
        }
        for (number, pages, durable, append) in batch {
            let appended = append.await.expect("appended");
            let mut told = told.borrow_mut();
            told.appended.push(Seen::new(number, pages, &appended));
            if durable == Durable::Yes {
                told.durable = told.appended.len();
            }
        }
        match rng.u8(0..6) {
            0 => {
                writer.flush().await.expect("flushed");
                let mut told = told.borrow_mut();
                told.durable = told.appended.len();
            }
            1 => {
                let epoch = told.borrow().epoch + 1;
                told.borrow_mut().epoch = epoch;
                let open = server.open_for_writing(stream, Epoch(epoch));
                writer = open.await.expect("taken over");
                let mut told = told.borrow_mut();
                told.durable = told.appended.len();
            }
            _ => {}
        }
    }
    writer.close().await.expect("closed");
    let mut told = told.borrow_mut();
    told.durable = told.appended.len();
}

fn check(rig: &Rig, told: &Told, what: &str) {
    let server = rig.server();
    let Some(stream) = told.stream else { return };
    let (epoch, what, told) = (told.epoch, what.to_owned(), told.clone());
    rig.run(async move {
        let open = server.open_for_writing(stream, Epoch(epoch + 1)).await;
        let writer = open.unwrap_or_else(|error| panic!("{what}: {error}"));
        let (found, damage) = replayed(&writer.reader()).await;
        assert!(damage.is_empty(), "{what}: {damage:?}");
        let numbers = found.iter().map(|seen| seen.number);
        assert!(
            numbers.eq(0..found.len() as u32),
            "{what}: a prefix: {found:?}"
        );
        assert!(
            found.len() >= told.durable,
            "{what}: {} of {} durable records",
            found.len(),
            told.durable
        );
        for (found, appended) in found.iter().zip(&told.appended) {
            assert_eq!(found, appended, "{what}: where it was said to be");
        }
        // It goes on behind them.
        let next = found.len() as u32;
        let append = writer.append(record(&writer, next, 1), Durable::Yes);
        let appended = append
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let (found, _) = replayed(&writer.reader()).await;
        assert_eq!(found.last(), Some(&Seen::new(next, 1, &appended)), "{what}");
    });
}

#[test]
fn what_was_promised_survives_a_crash_at_every_step() {
    let first = fastrand::u64(..1 << 32);
    for seed in first..first + 3 {
        println!("seed {seed}");
        let rig = Rig::new(seed, 24);
        let told = Rc::new(RefCell::new(Told::default()));
        let server = rig.server();
        rig.device().record();
        let task = rig
            .core
            .handle()
            .spawn(program(server, rig.core.handle(), seed, told.clone()));
        let mut crashes = 0;
        while !task.is_finished() {
            // Events happen while the device is polled, before tasks run: they belong to what was before.
            let before = (rig.model.fork(seed), told.borrow().clone());
            rig.core.turn();
            for snapshot in rig.device().take_snapshots() {
                crashes += 1;
                let image = snapshot.crash(seed ^ snapshot.event());
                let after = rig.after(image, before.0.fork(1));
                check(
                    &after,
                    &before.1,
                    &format!("seed {seed} event {}", snapshot.event()),
                );
            }
        }
        assert!(crashes > 50, "{crashes}");
        // A process that dies loses nothing that it was told.
        let mut told = told.borrow().clone();
        told.durable = told.appended.len();
        check(&rig.restarted(), &told, &format!("seed {seed} restarted"));
    }
}
