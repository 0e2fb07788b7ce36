//! A client that has its answers sent to a process that stands still.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use cache::herd::wire::request::Request;
use cache::herd::{ClientConfig, Command, Outcome, ServerConfig, Status};
use nic_soft::{SoftNic, SoftOptions};
use rustix::process::{Pid, Signal, WaitOptions};
use verbs::QpNum;
use verbs::typed::{Context, QpOptions, QueuePair, Ud};

use super::raw::{QKEY, Raw};
use super::rig::Rig;

/// The run directory of a process that has a queue pair and stands still.
const RUN_DIR: &str = "VERVAIN_STOPPED_RUN_DIR";

/// The process; it is killed in the end.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        // Ended already, or now.
        let _ = self.0.kill();
        self.0.wait().expect("the child is ours to wait for");
    }
}

impl Stopped {
    /// Starts it, and waits until it stands still. Also the number of its queue pair.
    fn start(rig: &Rig) -> (Stopped, QpNum) {
        let this = "herd::over_soft::stopped::process_that_stands_still";
        let child = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", this, "--nocapture"])
            .env(RUN_DIR, rig.run_dir())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut stopped = Stopped(child);
        let output = stopped.0.stdout.take().expect("it is piped");
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let mut words = lines.filter_map(|line| Some(line.split_once("queue pair ")?.1.to_owned()));
        let number = words.next().expect("it says its number");
        let pid = Pid::from_child(&stopped.0);
        let waited = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED);
        let (_, status) = waited.expect("waited").expect("it is there");
        assert!(status.stopped(), "{status:?}");
        (stopped, QpNum(number.trim().parse().expect("a number")))
    }
}

/// What the child process does: nothing, when it is not one.
#[test]
fn process_that_stands_still() {
    let Some(run_dir) = std::env::var_os(RUN_DIR) else {
        return;
    };
    let context = Context::new(SoftNic::open(&SoftOptions::new(run_dir)).expect("an adapter"));
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(4).expect("a queue");
    let mut qp: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    qp.activate(QKEY).expect("ready");
    println!("queue pair {}", qp.num().0);
    let this = rustix::process::getpid();
    rustix::process::kill_process(this, Signal::STOP).expect("stopped");
}

#[test]
fn a_process_that_stands_still_holds_no_core_up() {
    let (done, is_done) = mpsc::channel();
    let serve = move || {
        // So long that whoever waits for the process is found waiting.
        let options = |run_dir: &std::path::Path| {
            let mut options = SoftOptions::new(run_dir);
            options.contact_timeout = Duration::from_secs(3600);
            options
        };
        let config = ServerConfig {
            cores: 1,
            clients_max: 8,
            first_id: Some(1),
            ..ServerConfig::default()
        };
        let rig = Rig::on(super::fabric_with(options), config);
        let mut honest = rig.client(ClientConfig::default());
        let (_stopped, number) = Stopped::start(&rig);
        let mut raw = Raw::connect_for(&rig, 0, Some((number, QKEY)));
        // Something to answer there.
        let mut slot = [0; 64];
        let len = Request::Noop.emit(1, false, &mut slot).expect("it fits");
        raw.write(1, &slot[64 - len..], None);
        let mut answers = 0;
        while answers < 100 {
            let get = Command::Get { key: b"nothing" };
            honest.submit(&get, false, 1).expect("one at a time");
            let before = answers;
            while answers == before {
                rig.step();
                honest.poll(rig.now_ns(), &mut |_, outcome| {
                    assert!(matches!(outcome, Outcome::Refused(Status::NotFound)));
                    answers += 1;
                });
            }
        }
        let posted = rig.machine(|machine| machine.servers[0].stats()).answers;
        assert_eq!(posted, 101, "his answer waits for him alone");
        done.send(()).expect("somebody waits");
    };
    let server = std::thread::spawn(serve);
    let patience = Duration::from_secs(120);
    let waited = is_done.recv_timeout(patience);
    assert_ne!(
        waited,
        Err(mpsc::RecvTimeoutError::Timeout),
        "the core waits for a process that stands still"
    );
    server.join().expect("served");
}
