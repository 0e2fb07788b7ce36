//! A HERD client and server taking turns in one thread, over the software NIC.

use std::sync::Arc;

use anyhow::ensure;
use cache::herd::local::LocalDoor;
use cache::herd::{
    Acceptor, Client, ClientConfig, Command, Outcome, Server, ServerConfig, StoreMode,
};
use cache::mica::Partition;
use gates::Mark;
use nic_soft::{SoftNic, SoftOptions};
use verbs::typed::Context;

use crate::Path;
use crate::mica::{ITEMS, filled, key_of};
use crate::tell::mark;

const TABLE_SEED: u64 = 1;
/// Turns of the server in a round at most.
const TURNS_MAX: usize = 100;

/// What is asked of the server.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Hit,
    Miss,
    Put,
}

pub(crate) struct Herd {
    client: Client<LocalDoor>,
    server: Server,
    partition: Partition,
    ask: Ask,
    items: Vec<[u8; 16]>,
    keys: Vec<[u8; 16]>,
    random: fastrand::Rng,
    now_ns: u64,
    nics: [Arc<SoftNic>; 2],
    is_first: bool,
    _run_dir: tempfile::TempDir,
}

impl Herd {
    pub(crate) fn new(window: u32, ask: Ask) -> anyhow::Result<Self> {
        let run_dir = tempfile::tempdir()?;
        let options = SoftOptions::new(run_dir.path());
        let nics = [SoftNic::open(&options)?, SoftNic::open(&options)?];
        let [server_pd, client_pd] = nics
            .each_ref()
            .map(|nic| Context::new(nic.clone()).alloc_pd());
        let (server_pd, client_pd) = (server_pd?, client_pd?);
        let config = ServerConfig {
            window_max: window,
            // So that each run counts the same.
            first_id: Some(1),
            ..ServerConfig::default()
        };
        let (mut server, port) = Server::new(&server_pd, 0, &config)?;
        let door = LocalDoor::new(Acceptor::new(server_pd, &config, vec![port])?);
        let (partition, items) = filled(TABLE_SEED)?;
        let client_config = ClientConfig {
            window,
            // A traced round takes long, and the driver's time is made up anyway.
            retry_ns: 100_000_000,
            seed: Some(0),
            ..ClientConfig::default()
        };
        let client = Client::connect(client_pd, client_config, door.clone(), 0)?;
        door.serve(&mut server, 0);
        Ok(Herd {
            client,
            server,
            partition,
            ask,
            items,
            keys: vec![[0; 16]; window as usize],
            random: fastrand::Rng::with_seed(1),
            now_ns: 0,
            nics,
            is_first: true,
            _run_dir: run_dir,
        })
    }

    fn answered(ask: Ask, outcome: &Outcome<'_>) -> bool {
        match ask {
            Ask::Hit => matches!(outcome, Outcome::Value { value, .. } if value.len() == 32),
            Ask::Miss => matches!(outcome, Outcome::Refused(_)),
            Ask::Put => matches!(outcome, Outcome::Done { .. }),
        }
    }
}

impl Path for Herd {
    fn operations(&self) -> usize {
        self.keys.len()
    }

    fn round(&mut self) -> anyhow::Result<()> {
        for key in &mut self.keys {
            *key = match self.ask {
                Ask::Miss => key_of(ITEMS + self.random.u64(..ITEMS)),
                Ask::Hit | Ask::Put => self.items[self.random.usize(..self.items.len())],
            };
        }
        self.now_ns += 1000;
        let (ask, now_ns, value) = (self.ask, self.now_ns, [8; 32]);
        let mut refused = 0;
        mark(Mark::Client);
        for key in &self.keys {
            let command = match ask {
                Ask::Hit | Ask::Miss => Command::Get { key },
                Ask::Put => Command::Store {
                    mode: StoreMode::Set,
                    key,
                    value: &value,
                    flags: 0,
                    expiry_s: 0,
                },
            };
            refused += usize::from(self.client.submit(&command, false, 0).is_err());
        }
        self.client.flush(now_ns);
        mark(Mark::Nobody);
        ensure!(refused == 0, "{refused} requests did not fit the window");
        let (mut answers, mut wrong) = (0, 0);
        for _ in 0..TURNS_MAX {
            mark(Mark::Server);
            self.server.poll(&mut self.partition, now_ns, 1, 64);
            if self.is_first {
                // The first answers go through a new lane.
                mark(Mark::Nobody);
                self.nics.iter().for_each(|nic| nic.catch_up());
            }
            mark(Mark::Client);
            self.client.poll(now_ns, &mut |_, outcome| {
                answers += 1;
                wrong += usize::from(!Self::answered(ask, &outcome));
            });
            mark(Mark::Nobody);
            if answers == self.keys.len() {
                break;
            }
        }
        self.is_first = false;
        ensure!(
            answers == self.keys.len() && wrong == 0,
            "{answers} answers, {wrong} of them wrong"
        );
        Ok(())
    }
}
