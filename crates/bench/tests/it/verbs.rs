//! The microbenchmarks of verbs, with tiny inputs: both sides in one process, over the software NIC
//! and over the reference NIC, which is strict where a NIC has a choice.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bench::verbs::{
    Experiment, Link, Role, Target, VerbsReport, VerbsRun, VerbsRunError, Wishes, serve_peer,
    write_verbs,
};
use conformance::model::ModelNic;
use nic_soft::{SoftNic, SoftOptions};
use verbs::Transport;
use verbs::decorate::{FaultPlan, Faulty};
use verbs::nic::Nic;
use verbs::typed::Context;

/// Two NICs that reach each other, and what they need.
struct Fabric {
    nics: [Arc<dyn Nic>; 2],
    _run_dir: Option<tempfile::TempDir>,
}

fn soft() -> Fabric {
    let run_dir = tempfile::tempdir().expect("a directory");
    let open = || {
        SoftNic::open(&SoftOptions::new(run_dir.path()).contact_timeout(Duration::from_secs(60)))
            .expect("an adapter")
    };
    Fabric {
        nics: [open(), open()],
        _run_dir: Some(run_dir),
    }
}

fn model() -> Fabric {
    let mut nics = ModelNic::fabric(2).into_iter();
    let mut nic = || Arc::new(nics.next().expect("two NICs")) as Arc<dyn Nic>;
    Fabric {
        nics: [nic(), nic()],
        _run_dir: None,
    }
}

fn link(stream: UnixStream) -> Link {
    Link::new(stream.try_clone().expect("cloned"), stream)
}

/// Runs with a peer in a thread; how both ended.
fn run(
    fabric: &Fabric,
    set: impl FnOnce(&mut VerbsRun),
) -> (
    Result<VerbsReport, VerbsRunError>,
    Result<(), VerbsRunError>,
) {
    let [ours, theirs] = fabric.nics.clone();
    let (one, two) = UnixStream::pair().expect("a pair");
    let peer = std::thread::spawn(move || serve_peer(&Context::new(theirs), link(two)));
    let mut run = VerbsRun::new(Context::new(ours));
    run.each = Duration::from_millis(2);
    run.rounds = 1;
    set(&mut run);
    let shutdown = one.try_clone().expect("cloned");
    let report = run.run(link(one), &mut |_| {});
    shutdown.shutdown(std::net::Shutdown::Both).expect("closed");
    (report, peer.join().expect("no panic"))
}

fn measured(fabric: &Fabric, set: impl FnOnce(&mut VerbsRun)) -> VerbsReport {
    let (report, peer) = run(fabric, set);
    let report = report.unwrap_or_else(|error| panic!("{error}; the peer: {peer:?}"));
    peer.expect("the peer ends with the conversation");
    for row in &report.rows {
        assert!(row.operations > 0, "{row:?}");
        let throughput = row.mops.is_some_and(|mops| mops > 0.0);
        let latency = row.latency.is_some_and(|latency| latency.p50_ns > 0);
        assert!(throughput || latency, "{row:?}");
    }
    report
}

fn wishes() -> Wishes {
    Wishes {
        brief: true,
        ..Wishes::default()
    }
}

#[test]
fn every_experiment_runs_over_the_software_nic() {
    let report = measured(&soft(), |run| run.experiments = Experiment::all());
    for one in Experiment::all() {
        let mut rows = report.rows.iter();
        assert!(rows.any(|row| row.case.experiment == one), "{one}");
    }
    let figures = [
        report.write64_vs_ring(),
        report.read64_mops(),
        report.cas_mops(),
        report.echo_vs_pingpong(),
        report.hybrid_vs_write_echo(),
    ];
    for (index, figure) in figures.into_iter().enumerate() {
        let figure = figure.unwrap_or_else(|| panic!("figure {index} is missing"));
        assert!(figure.is_finite() && figure > 0.0, "figure {index}");
    }
    let mut table = Vec::new();
    write_verbs(&report, &mut table).expect("a table");
    let table = String::from_utf8(table).expect("text");
    assert!(
        table.contains("WRITE/SEND") && table.contains("in short"),
        "{table}"
    );
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(
        json["rows"].as_array().map(Vec::len),
        Some(report.rows.len())
    );
    assert_eq!(json["rows"][0]["transport"], "UC");
}

/// The reference NIC frees a send queue's slots only as completions are polled, and its completion
/// queues overrun at exactly their depth: whoever miscounts fails.
#[test]
fn every_experiment_keeps_to_the_depth_of_its_queues() {
    measured(&model(), |run| {
        run.experiments = Experiment::all();
        run.wishes = Wishes {
            sizes: vec![16],
            qps: vec![1, 3],
            ..wishes()
        };
    });
}

#[test]
fn uneven_settings_are_taken() {
    let report = measured(&model(), |run| {
        run.experiments = vec![Experiment::Write, Experiment::Send, Experiment::Cas];
        run.wishes = Wishes {
            sizes: vec![4, 68],
            windows: vec![1, 5, 7],
            postlists: vec![1, 3],
            signal_every: vec![2, 100],
            qps: vec![1, 5],
            ..wishes()
        };
    });
    assert!(report.rows.len() > 50);
    assert!(
        report
            .rows
            .iter()
            .all(|row| row.case.postlist <= row.case.window)
    );
}

#[test]
fn what_comes_in_is_measured_where_it_arrives() {
    let report = measured(&soft(), |run| {
        run.experiments = vec![Experiment::Write, Experiment::Read, Experiment::Send];
        run.wishes = Wishes {
            sizes: vec![64],
            role: Some(Role::Inbound),
            target: Some(Target::Polling),
            ..wishes()
        };
    });
    assert!(report.rows.iter().all(|row| row.case.role == Role::Inbound));
}

#[test]
fn each_operation_is_timed() {
    let report = measured(&soft(), |run| {
        run.experiments = Experiment::all()[..5].to_vec();
        run.wishes = Wishes {
            sizes: vec![64],
            latency: true,
            ..wishes()
        };
    });
    assert!(report.rows.iter().all(|row| row.latency.is_some()));
}

#[test]
fn losses_are_told_and_not_measured() {
    let Fabric {
        nics: [ours, theirs],
        _run_dir,
    } = soft();
    let plan = FaultPlan {
        uc_drop_ppm: 200_000,
        ..FaultPlan::default()
    };
    let faulty = Arc::new(Faulty::new(ours, plan).expect("a plan"));
    let fabric = Fabric {
        nics: [faulty, theirs],
        _run_dir,
    };
    let (report, peer) = run(&fabric, |run| {
        run.experiments = vec![Experiment::Send];
        run.wishes = Wishes {
            sizes: vec![64],
            transports: vec![Transport::Uc],
            ..wishes()
        };
    });
    let error = report.expect_err("messages were lost").to_string();
    assert!(error.contains("lost") || error.contains("wrong"), "{error}");
    assert!(peer.is_err());
}

#[test]
fn a_peer_that_goes_ends_the_run() {
    let (one, two) = UnixStream::pair().expect("a pair");
    let run = VerbsRun::new(Context::new(model().nics[0].clone()));
    drop(two);
    let error = run.run(link(one), &mut |_| {}).expect_err("nobody there");
    assert!(error.to_string().contains("gone"), "{error}");
}
