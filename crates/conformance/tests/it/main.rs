//! The conformance suite over the reference NIC, decorated and not, and behind a proxy.

mod blind;
mod decorators;
mod files;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use conformance::model::ModelNic;
use conformance::{Asleep, Fixture};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::nic::Nic;

fn wait_readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let patience = Timespec::try_from(patience).expect("a time that poll can wait");
    poll(&mut fds, Some(&patience)).expect("poll") == 1
}

/// What no fixture of reference NICs can show: none of their nodes dies.
const NOT_HERE: [&str; 1] = ["a_sender_that_dies_in_a_message_loses_no_recv"];

/// A fixture of reference NICs, whose time is the number of polls.
fn fixture(a: Arc<dyn Nic>, b: Arc<dyn Nic>) -> Fixture {
    Fixture::new(a, b)
        .may_skip(&NOT_HERE)
        .waiting_with(wait_readable)
        .asleep(Asleep::RunsWithPosts)
}

/// Two reference NICs.
fn nics() -> [Arc<ModelNic>; 2] {
    let nics: [ModelNic; 2] = ModelNic::fabric(2).try_into().expect("two nodes");
    nics.map(Arc::new)
}

mod reference {
    use super::*;

    fn pair() -> Fixture {
        let [a, b] = nics();
        fixture(a, b)
    }

    conformance::conformance_tests!(pair());
}

mod through_a_network {
    use conformance::model::{Faults, NetworkOptions};

    use super::*;

    /// A network that loses nothing, but takes its time.
    fn pair() -> Fixture {
        let options = NetworkOptions {
            seed: 1,
            ns_per_look: 1500,
            ..NetworkOptions::default()
        };
        let (nics, network) = ModelNic::networked(2, options);
        network.set_faults(Faults {
            post_ns_max: 2_500,
            delay_ns_min: 500,
            delay_ns_max: 5_000,
            slow_permille: 20,
            slow_ns_max: 25_000,
            line_ns_max: 250,
            ..Faults::default()
        });
        let [a, b]: [ModelNic; 2] = nics.try_into().expect("two nodes");
        let mut fixture = Fixture::new(Arc::new(a), Arc::new(b))
            .may_skip(&NOT_HERE)
            .waiting_with(wait_readable)
            .asleep(Asleep::StandsStill);
        // Time passes as threads look, and these offer their CPU in between.
        fixture.patience = Duration::from_secs(600);
        fixture
    }

    conformance::conformance_tests!(pair());
}

mod behind_a_proxy {
    use std::os::unix::net::UnixStream;

    use conformance::remote::{RemoteNic, serve_nic};

    use super::*;

    /// Node B is at the other end of a socket, where a thread serves it.
    fn pair() -> Fixture {
        let [a, b] = nics();
        let (near, far) = UnixStream::pair().expect("a socket pair");
        let reader = far.try_clone().expect("a second handle");
        let server = std::thread::spawn(move || serve_nic(b, reader, far));
        let reader = near.try_clone().expect("a second handle");
        let b = Arc::new(RemoteNic::new(reader, near));
        fixture(a, b).keeping(server)
    }

    conformance::conformance_tests!(pair());

    #[test]
    fn the_server_ends_well_when_its_client_is_gone() {
        let [_, b] = nics();
        let (near, far) = UnixStream::pair().expect("a socket pair");
        let reader = far.try_clone().expect("a second handle");
        let server = std::thread::spawn(move || serve_nic(b, reader, far));
        let reader = near.try_clone().expect("a second handle");
        drop(RemoteNic::new(reader, near));
        let served = server.join().expect("no panic");
        served.expect("no error");
    }
}

mod traced {
    use std::sync::atomic::{AtomicU64, Ordering};

    use verbs::decorate::{Event, Traced};

    use super::*;

    fn pair() -> Fixture {
        let count = AtomicU64::new(0);
        let sink = move |_: Event| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let [a, b] = nics();
        fixture(Arc::new(Traced::new(a, sink)), b)
    }

    conformance::conformance_tests!(pair());
}

mod counted {
    use verbs::decorate::Counted;

    use super::*;

    fn pair() -> Fixture {
        let [a, b] = nics().map(|nic| Arc::new(Counted::new(nic)));
        fixture(a, b)
    }

    conformance::conformance_tests!(pair());
}

mod faulty_without_faults {
    use verbs::decorate::{FaultPlan, Faulty};

    use super::*;

    fn pair() -> Fixture {
        let faulty =
            |nic| Arc::new(Faulty::new(nic, FaultPlan::default()).expect("a small region"));
        let [a, b] = nics().map(|nic| faulty(nic));
        fixture(a, b)
    }

    conformance::conformance_tests!(pair());
}
