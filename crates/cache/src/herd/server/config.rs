//! A server's sizes and times.

use super::attachment::Stored;
use super::{KICK_ENTRIES, KICK_RECVS_MAX};
use crate::herd::slots::Geometry;
use crate::herd::wire::handshake::{CORES_MAX, ServerInfo};
use crate::route::Route;
use verbs::{Qkey, VerbsError};

/// Bytes of a datagram at most, whatever the path carries.
pub(super) const ANSWER_LEN_MAX: usize = 4096;

/// Bytes of an entry of a completion queue at most, and of a RECV queue, whatever the NIC: one may
/// make twice as many entries as it is asked for, to have a power of two of them.
const CQ_ENTRY_LEN: usize = 2 * 64;
const RECV_LEN: usize = 64;
/// Bytes that a core and its NIC keep of a client besides: its queue pair, address and places in lists.
const CLIENT_LEN: usize = 4 << 10;

/// What a server is made with; the same for all its cores.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Cores, each with a partition and a [`Server`](super::Server).
    pub cores: u32,
    /// Clients at most.
    pub clients_max: u32,
    /// Requests at most that a client may have under way to one core, a power of two.
    pub window_max: u32,
    /// Bytes of a slot, a multiple of 64.
    pub slot_len: u32,
    /// Bytes of a value at most, as clients send it. APPEND and PREPEND may make a longer one.
    pub value_len_max: u32,
    /// Buffers of a core, each `value_len_max` long, in which large values arrive.
    pub staging_count: u32,
    /// A large value on its way in whose pieces stop coming may be forgotten after so long, for another one;
    /// one on its way out, which can be read again, after a 50th of it, and after a 10th in any case.
    pub staging_idle_ns: u64,
    /// A core may sleep after so long without work; 0 never sleeps.
    pub idle_ns: u64,
    /// A gone client's address handles are kept for so long, because answers on their way out may
    /// name them.
    pub handle_rest_ns: u64,
    /// Requests that go through the pipeline together.
    pub batch_max: u32,
    /// The seed by which keys are spread over cores. Every client is told it.
    pub route_seed: u64,
    /// Differs from start to start.
    pub incarnation: u64,
    /// The id of every client's first request, not 0, for tests: a high one makes the ids wrap soon.
    /// `None` draws one for each client, which no other can guess.
    pub first_id: Option<u32>,
    /// The key of the server's own datagram queue pairs.
    pub qkey: Qkey,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            cores: 1,
            clients_max: 256,
            window_max: 16,
            slot_len: 1024,
            value_len_max: 1 << 20,
            staging_count: 4,
            staging_idle_ns: 1_000_000_000,
            idle_ns: 0,
            handle_rest_ns: 1_000_000_000,
            batch_max: 32,
            route_seed: 0,
            incarnation: 1,
            first_id: None,
            qkey: Qkey(0x0048_4552),
        }
    }
}

impl ServerConfig {
    /// The slots of a chunk.
    ///
    /// # Errors
    /// `Invalid` for numbers that make no sense.
    pub(super) fn geometry(&self) -> Result<Geometry, VerbsError> {
        Geometry::new(self.slot_len as usize, self.window_max as usize)
            .ok_or_else(|| VerbsError::invalid("slot_len or window_max", "not a usable size"))
    }

    /// Bytes that each client has registered for it, all cores together; 0 if the numbers make no
    /// sense.
    #[must_use]
    pub fn client_memory(&self) -> usize {
        let chunk = self.geometry().map_or(0, |geometry| geometry.chunk_len());
        self.cores as usize * chunk
    }

    /// Bytes that each client takes at most besides what is registered for it, all cores together: RECVs
    /// for its kicks and entries of the completion queues, and its results.
    #[must_use]
    pub fn client_queue_memory(&self) -> usize {
        let kicks = KICK_RECVS_MAX as usize * (RECV_LEN + KICK_ENTRIES as usize * CQ_ENTRY_LEN);
        let results = self.window_max as usize * (size_of::<Stored>() + size_of::<u32>());
        self.cores as usize * (kicks + results + CLIENT_LEN)
    }

    /// Bytes that the server takes at most for its clients, and for large values on their way in. Besides, each
    /// core has a ring of answers, 128 of 4 KiB, a batch of requests, and a key for each request that waits
    /// for its engine.
    #[must_use]
    pub fn memory_max(&self) -> usize {
        let staging = self.staging_count as usize * self.value_len_max as usize;
        let client = self.client_memory() + self.client_queue_memory();
        self.clients_max as usize * client + self.cores as usize * staging
    }

    /// Bytes of large values on their way out at most, each with a bit for each byte that has been answered,
    /// in front of an engine whose values have to be waited for.
    #[must_use]
    pub fn outgoing_max(&self) -> usize {
        let value = (self.value_len_max as usize).next_multiple_of(64);
        self.cores as usize * self.staging_count as usize * (value + value / 8)
    }

    /// Which core has a key.
    #[must_use]
    pub fn route(&self) -> Route {
        Route::new(self.route_seed, self.cores)
    }

    pub(super) fn check(&self) -> Result<(), VerbsError> {
        self.geometry()?;
        if self.cores == 0 || self.cores as usize > CORES_MAX {
            return Err(VerbsError::invalid("cores", "not 1..=256"));
        }
        if self.first_id == Some(0) {
            return Err(VerbsError::invalid("first_id", "0 is no id"));
        }
        if self.clients_max == 0 || self.batch_max == 0 || self.batch_max > 64 {
            return Err(VerbsError::invalid(
                "clients_max or batch_max",
                "clients_max is at least 1, batch_max 1..=64",
            ));
        }
        Ok(())
    }

    pub(super) fn info(&self, answer_len_max: usize) -> ServerInfo {
        ServerInfo {
            incarnation: self.incarnation,
            route_seed: self.route_seed,
            idle_ns: self.idle_ns,
            cores: self.cores,
            window_max: self.window_max,
            slot_len: self.slot_len,
            answer_len_max: answer_len_max as u32,
            value_len_max: self.value_len_max,
        }
    }
}
