//! What each decorator does.

use std::sync::{Arc, Mutex};

use conformance::model::ModelNic;
use verbs::connect::{to_init, to_rts};
use verbs::decorate::{
    Counted, Event, Fault, FaultPlan, Faulty, Object, Printer, Scripted, Sink, Traced,
};
use verbs::nic::Nic;
use verbs::typed::{
    AddressHandle, CompletionQueue, ConnectOptions, Context, MemoryRegion, QpOptions, QueuePair,
    Rc, TransportType, Uc, Ud, Wr,
};
use verbs::{
    Access, AhAttr, CqInit, Op, Payload, PostReason, Psn, Qkey, QpAttr, QpInit, QpState, RecvWr,
    SendBatch, SendFlags, SendWr, Transport, UdDest, VerbsError, Wc, WcOpcode, WcStatus,
};

const QKEY: Qkey = Qkey(7);
const ROOM: usize = 64;

struct End<T> {
    context: Context,
    cq: CompletionQueue,
    region: MemoryRegion,
    qp: QueuePair<T>,
}

impl<T: TransportType> End<T> {
    fn new(nic: Arc<dyn Nic>) -> Self {
        let context = Context::new(nic);
        let pd = context.alloc_pd().expect("a protection domain");
        let cq = context.create_cq(512).expect("a completion queue");
        let region = pd.allocate(1 << 16, Access::EVERYTHING).expect("a region");
        let qp = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        End {
            context,
            cq,
            region,
            qp,
        }
    }

    fn poll(&mut self) -> Vec<Wc> {
        let mut out = [Wc::default(); 64];
        let count = self.cq.poll(&mut out).expect("no overrun");
        out[..count].to_vec()
    }

    fn post_recvs(&mut self, count: usize) {
        for id in 0..count {
            let sges = [self.region.sge(id * ROOM..(id + 1) * ROOM)];
            let recv = RecvWr {
                id: id as u64,
                sges: &sges,
            };
            self.qp.post_recv(&[recv]).expect("room for a RECV");
        }
    }

    /// The first payload byte of each message received so far, in order.
    fn messages(&mut self, header: usize) -> Vec<u8> {
        let polled = self.poll();
        let first = |wc: &Wc| {
            let mut byte = [0];
            self.region.read(wc.id as usize * ROOM + header, &mut byte);
            byte[0]
        };
        polled.iter().map(first).collect()
    }
}

fn models() -> [Arc<dyn Nic>; 2] {
    let nics: [ModelNic; 2] = ModelNic::fabric(2).try_into().expect("two nodes");
    nics.map(|nic| Arc::new(nic) as Arc<dyn Nic>)
}

fn connected<T: verbs::typed::Connected>(a: Arc<dyn Nic>, b: Arc<dyn Nic>) -> (End<T>, End<T>) {
    let (mut a, mut b) = (End::<T>::new(a), End::<T>::new(b));
    let of_a = a.qp.endpoint().expect("a GID");
    let of_b = b.qp.endpoint().expect("a GID");
    let options = ConnectOptions::default();
    b.qp.connect(&of_a, &options).expect("connected");
    a.qp.connect(&of_b, &options).expect("connected");
    (a, b)
}

fn datagrams(a: Arc<dyn Nic>, b: Arc<dyn Nic>) -> (End<Ud>, End<Ud>, AddressHandle) {
    let (mut a, mut b) = (End::<Ud>::new(a), End::<Ud>::new(b));
    a.qp.activate(QKEY).expect("RTS");
    b.qp.activate(QKEY).expect("RTS");
    b.post_recvs(100);
    let gid = b.context.gid().expect("a GID");
    let to = a.qp.pd().create_ah(gid).expect("an address handle");
    (a, b, to)
}

fn script(transport: Transport, faults: &[(u64, Fault)]) -> FaultPlan {
    let entry = |(nth, fault): &(u64, Fault)| Scripted {
        qp: None,
        transport: Some(transport),
        nth: *nth,
        fault: *fault,
    };
    FaultPlan {
        delay_calls: 3,
        script: faults.iter().map(entry).collect(),
        ..FaultPlan::default()
    }
}

fn faulty(nic: Arc<dyn Nic>, plan: FaultPlan) -> Arc<dyn Nic> {
    Arc::new(Faulty::new(nic, plan).expect("a small region"))
}

#[test]
fn a_trace_tells_what_happened_in_order() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let events = Arc::clone(&events);
        move |event: Event| events.lock().expect("no panic").push(event)
    };
    let [a, b] = models();
    let (mut a, mut b) = connected::<Rc>(Arc::new(Traced::new(a, sink)), b);
    b.post_recvs(1);
    a.qp.post_send(&[Wr::send_inline(b"hello").id(5)])
        .expect("posted");
    let done = a.poll();
    let sges = [a.region.sge(0..8); 5];
    a.qp.post_recv(&[RecvWr { id: 9, sges: &sges }])
        .expect_err("five elements");
    a.post_recvs(1);
    let events = std::mem::take(&mut *events.lock().expect("no panic"));
    let (qp, cq) = (a.qp.num(), a.cq.num());
    let states: Vec<_> = events[..3]
        .iter()
        .map(|event| match event {
            Event::Modify { from, to, done, .. } => (*from, *to, *done),
            other => panic!("not a state change: {other:?}"),
        })
        .collect();
    let expected = [
        (QpState::Reset, QpState::Init, true),
        (QpState::Init, QpState::Rtr, true),
        (QpState::Rtr, QpState::Rts, true),
    ];
    assert_eq!(states, expected);
    assert!(matches!(events[3], Event::Send { id: 5, len: 5, qp: of, .. } if of == qp));
    assert_eq!(events[4], Event::Completion { cq, wc: done[0] });
    match events[5] {
        Event::Refused { qp: of, error } => {
            assert_eq!((of, error.reason), (Some(qp), PostReason::TooManySges));
        }
        other => panic!("not a refusal: {other:?}"),
    }
    assert_eq!(events[6], Event::Recv { qp, id: 0, len: 64 });
    assert_eq!(events.len(), 7);
}

#[test]
fn the_printer_prints_a_line_an_event_and_keeps_the_first_error() {
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut page = self.0.lock().expect("no panic");
            if page.len() > 20 {
                return Err(std::io::Error::other("the page is full"));
            }
            page.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let page = Page::default();
    let printer = Printer::new(page.clone());
    let event = Event::Overrun {
        cq: verbs::CqNum(16),
    };
    printer.event(event);
    assert_eq!(*page.0.lock().expect("no panic"), b"cq 0x10: overrun\n");
    assert!(printer.take_error().is_none());
    for _ in 0..3 {
        printer.event(event);
    }
    let error = printer.take_error().expect("the page is full");
    assert_eq!(error.to_string(), "the page is full");
}

#[test]
fn counters_add_up_and_outlive_their_objects() {
    let [a, b] = models();
    let counted = Arc::new(Counted::new(a));
    let (mut a, mut b) = connected::<Rc>(counted.clone(), b);
    b.post_recvs(3);
    a.poll();
    let batch = [
        Wr::send_inline(b"12345"),
        Wr::send_inline(b"678").unsignaled(),
    ];
    a.qp.post_send(&batch).expect("posted");
    let sges = [a.region.sge(0..100)];
    a.qp.post_send(&[Wr::read(&sges, b.region.remote(0))])
        .expect("posted");
    let stopped = [Wr::send_inline(b"9"), Wr::send_inline(&[0; 1000])];
    a.qp.post_send(&stopped).expect_err("too long");
    let sges = [a.region.sge(0..8); 5];
    a.qp.post_recv(&[RecvWr { id: 9, sges: &sges }])
        .expect_err("five elements");
    a.post_recvs(2);
    assert_eq!(a.poll().len(), 3);
    a.qp.modify(&verbs::QpAttr::to(QpState::Err)).expect("ERR");
    assert_eq!(a.poll().len(), 2);
    let counts = counted.counts();
    assert_eq!(
        (counts.send_batches, counts.sends, counts.send_bytes),
        (3, 4, 109)
    );
    assert_eq!(
        (counts.recv_batches, counts.recvs, counts.refusals),
        (3, 2, 1)
    );
    assert_eq!((counts.polls_empty, counts.polls_full), (1, 2));
    assert_eq!(counts.completed(WcStatus::Success), 3);
    assert_eq!(counts.completed(WcStatus::WrFlushErr), 2);
    assert_eq!((counts.completion_bytes, counts.modifies), (100, 4));
    let of_qp = counted.by_object();
    let of_qp = of_qp
        .iter()
        .find(|(object, _)| *object == Object::Qp(a.qp.num()));
    let (_, of_qp) = of_qp.expect("the queue pair has counters");
    assert_eq!((of_qp.sends, of_qp.polls_full), (4, 0));
    drop(a);
    assert_eq!(counted.counts(), counts);
    assert!(counted.by_object().is_empty());
}

#[test]
fn datagrams_are_lost_repeated_and_late_by_script() {
    let faults = [
        (1, Fault::Drop),
        (3, Fault::Delay),
        (6, Fault::Duplicate),
        (8, Fault::Error),
    ];
    let [a, b] = models();
    let (mut a, mut b, to) = datagrams(faulty(a, script(Transport::Ud, &faults)), b);
    let peer = b.qp.num();
    for id in 0..12 {
        // The bytes of a late datagram are those that were there when it was posted.
        a.region.write(0, &[id as u8]);
        let sges = [a.region.sge(0..1)];
        a.qp.post_send(&[Wr::send_to(&to, peer, QKEY, &sges).id(id)])
            .expect("posted");
        let done = a.poll();
        assert_eq!(done.len(), 1, "{done:?}");
        let wc = done[0];
        assert_eq!(
            (wc.id, wc.status, wc.opcode),
            (id, WcStatus::Success, WcOpcode::Send)
        );
    }
    assert!(a.poll().is_empty(), "copies have no completion");
    let got = b.messages(40);
    let expected = [0, 2, 4, 3, 5, 6, 7, 6, 8, 9, 10, 11];
    let sorted = |messages: &[u8]| {
        let mut messages = messages.to_vec();
        messages.sort_unstable();
        messages
    };
    assert_eq!(sorted(&got), sorted(&expected), "{got:?}");
    let first = |message| got.iter().position(|got| *got == message);
    assert!(first(3) > first(4), "3 is late: {got:?}");
    assert!(first(1).is_none());
}

#[test]
fn a_late_datagram_whose_address_handle_has_gone_is_lost() {
    let [a, b] = models();
    let calls = 8;
    let plan = FaultPlan {
        delay_calls: calls,
        ..script(Transport::Ud, &[(0, Fault::Delay), (1, Fault::Duplicate)])
    };
    let (mut a, mut b, to) = datagrams(faulty(a, plan), b);
    let (peer, gid) = (b.qp.num(), b.context.gid().expect("a GID"));
    let next = a.qp.pd().create_ah(gid).expect("an address handle");
    let batch = [0, 1].map(|id| Wr::send_inline_to(&to, peer, QKEY, b"x").id(id));
    a.qp.post_send(&batch).expect("posted");
    let mut done = a.poll();
    drop(to);
    for _ in 0..calls {
        done.extend(a.poll());
    }
    a.qp.post_send(&[Wr::send_inline_to(&next, peer, QKEY, b"y").id(2)])
        .expect("posted");
    done.extend(a.poll());
    let done: Vec<_> = done.iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(done, [0, 1, 2].map(|id| (id, WcStatus::Success)));
    assert_eq!(b.messages(40), b"xy");
}

#[test]
fn late_datagrams_of_many_queue_pairs_go_out_in_one_order() {
    let run = || {
        let [a, b] = models();
        let plan = script(Transport::Ud, &[(0, Fault::Delay)]);
        let calls = plan.delay_calls;
        let (mut a, mut b, to) = datagrams(faulty(a, plan), b);
        let peer = b.qp.num();
        let mut others: Vec<QueuePair<Ud>> = Vec::new();
        for id in 0..8u8 {
            let made = a.qp.pd().create_qp(&QpOptions::on(&a.cq));
            let mut qp = made.expect("a queue pair");
            qp.activate(QKEY).expect("RTS");
            qp.post_send(&[Wr::send_inline_to(&to, peer, QKEY, &[id]).id(id.into())])
                .expect("posted");
            others.push(qp);
        }
        for _ in 0..calls {
            a.poll();
        }
        b.messages(40)
    };
    let order: Vec<u8> = (0..8).collect();
    for _ in 0..32 {
        assert_eq!(run(), order);
    }
}

#[test]
fn random_losses_are_as_planned_and_the_same_every_time() {
    let run = |seed| {
        let plan = FaultPlan {
            seed,
            ud_drop_ppm: 200_000,
            ud_duplicate_ppm: 200_000,
            ud_delay_ppm: 200_000,
            ..FaultPlan::default()
        };
        let [a, b] = models();
        let (mut a, mut b, to) = datagrams(faulty(a, plan), b);
        let peer = b.qp.num();
        for id in 0..60u8 {
            let wr = Wr::send_inline_to(&to, peer, QKEY, std::slice::from_ref(&id));
            a.qp.post_send(&[wr.id(id.into())]).expect("posted");
            assert_eq!(a.poll().len(), 1);
        }
        for _ in 0..20 {
            assert!(a.poll().is_empty());
        }
        let mut got = b.messages(40);
        got.extend(b.messages(40));
        got
    };
    let got = run(1);
    assert_eq!(got, run(1));
    assert_ne!(got, run(2));
    let distinct: std::collections::BTreeSet<_> = got.iter().collect();
    assert!(
        (30..60).contains(&distinct.len()),
        "{} arrived",
        distinct.len()
    );
    assert!(got.len() > distinct.len(), "some arrived twice");
    assert!(!got.is_sorted(), "some were late");
}

#[test]
fn lost_unreliable_requests_complete_as_what_they_were() {
    let faults = [(1, Fault::Drop), (2, Fault::Drop)];
    let [a, b] = models();
    let (mut a, mut b) = connected::<Uc>(faulty(a, script(Transport::Uc, &faults)), b);
    b.post_recvs(4);
    let remote = b.region.remote(1024);
    let batch = [
        Wr::send_inline(b"0").id(0),
        Wr::send_inline(b"1").id(1),
        Wr::write_inline(b"2", remote).id(2),
        Wr::send_inline(b"3").id(3),
    ];
    a.qp.post_send(&batch).expect("posted");
    let done: Vec<_> = a
        .poll()
        .iter()
        .map(|wc| (wc.id, wc.status, wc.opcode))
        .collect();
    let ok = WcStatus::Success;
    let (send, write) = (WcOpcode::Send, WcOpcode::Write);
    assert_eq!(
        done,
        [(0, ok, send), (1, ok, send), (2, ok, write), (3, ok, send)]
    );
    assert_eq!(b.messages(0), b"03");
    let mut there = [0xee];
    b.region.read(1024, &mut there);
    assert_eq!(there, [0], "the WRITE was lost");
}

#[test]
fn a_stalled_connection_keeps_its_order() {
    let [a, b] = models();
    let plan = script(Transport::Uc, &[(1, Fault::Delay)]);
    let (mut a, mut b) = connected::<Uc>(faulty(a, plan), b);
    b.post_recvs(8);
    let mut byte = [0];
    for id in 0..3u8 {
        byte[0] = b'0' + id;
        a.qp.post_send(&[Wr::send_inline(&byte).id(id.into())])
            .expect("posted");
    }
    assert_eq!(b.messages(0), b"0", "1 is late and holds 2 up");
    let mut done: Vec<_> = a.poll().iter().map(|wc| wc.id).collect();
    for _ in 0..3 {
        done.extend(a.poll().iter().map(|wc| wc.id));
    }
    assert_eq!(done, [0, 1, 2]);
    let mut bytes = [0; 1];
    let late = b.poll();
    assert_eq!(late.len(), 2);
    for (wc, expected) in late.iter().zip(b"12") {
        b.region.read(wc.id as usize * ROOM, &mut bytes);
        assert_eq!(bytes[0], *expected);
    }
}

#[test]
fn a_stalled_connection_that_fails_flushes_what_it_held() {
    let [a, b] = models();
    let plan = FaultPlan {
        delay_calls: 1000,
        ..script(Transport::Uc, &[(0, Fault::Delay)])
    };
    let (mut a, mut b) = connected::<Uc>(faulty(a, plan), b);
    b.post_recvs(8);
    let batch = [Wr::send_inline(b"0").id(0), Wr::send_inline(b"1").id(1)];
    a.qp.post_send(&batch).expect("held");
    assert!(a.poll().is_empty());
    a.qp.modify(&verbs::QpAttr::to(QpState::Err)).expect("ERR");
    let done: Vec<_> = a.poll().iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(done, [(0, WcStatus::WrFlushErr), (1, WcStatus::WrFlushErr)]);
    assert!(b.poll().is_empty());
}

#[test]
fn a_reliable_request_fails_and_flushes_what_is_behind_it() {
    let [a, b] = models();
    let plan = script(Transport::Rc, &[(1, Fault::Error)]);
    let (mut a, mut b) = connected::<Rc>(faulty(a, plan), b);
    b.post_recvs(4);
    let batch = [
        Wr::send_inline(b"0").id(0),
        Wr::send_inline(b"1").id(1).unsignaled(),
        Wr::send_inline(b"2").id(2),
    ];
    a.qp.post_send(&batch).expect("posted");
    let done: Vec<_> = a.poll().iter().map(|wc| (wc.id, wc.status)).collect();
    let expected = [
        (0, WcStatus::Success),
        (1, WcStatus::RetryExcErr),
        (2, WcStatus::WrFlushErr),
    ];
    assert_eq!(done, expected);
    assert_eq!(a.qp.state(), QpState::Err);
    assert_eq!((b.qp.state(), b.messages(0)), (QpState::Rts, vec![b'0']));
}

#[test]
fn a_list_for_which_there_is_room_is_refused_at_its_head_or_not_at_all() {
    let refused = [0, 2, 3, 5].map(|nth| (nth, Fault::NoMemory));
    let [a, _] = models();
    let nic = faulty(a, script(Transport::Ud, &refused));
    let pd = nic.alloc_pd().expect("a protection domain");
    let cq = nic.create_cq(&CqInit::new(64)).expect("a completion queue");
    let init = QpInit::new(pd, Transport::Ud, cq.num(), cq.num());
    let mut qp = nic.create_qp(&init).expect("a queue pair");
    let attr = to_init(Transport::Ud, Access::empty(), QKEY);
    qp.ctl.modify(&attr).expect("INIT");
    qp.ctl.modify(&QpAttr::to(QpState::Rtr)).expect("RTR");
    let attr = to_rts(Transport::Ud, Psn(0), &ConnectOptions::default());
    qp.ctl.modify(&attr).expect("RTS");
    let gid = nic.port(1).expect("a port").gids[0].gid;
    let ah = nic
        .create_ah(pd, &AhAttr::to(gid))
        .expect("an address handle");
    let (qpn, qkey) = (qp.ctl.num(), QKEY);
    let request = SendWr {
        id: 0,
        op: Op::Send { imm: None },
        payload: Payload::Gather(&[]),
        flags: SendFlags::empty(),
        to: Some(UdDest { ah, qpn, qkey }),
    };
    let mut lists = SendBatch::new(qp.send.limits(), 2);
    lists.push(&request).expect("it fits");
    lists.push(&request).expect("it fits");
    // As for whoever posts all of a list or nothing.
    let (mut posted, mut refusals) = (0, 0);
    while posted < 4 {
        if qp.send.room() < 2 {
            refusals += 1;
        } else if let Err(error) = qp.send.post(&lists) {
            assert_eq!(error.index, 0, "{error}");
            refusals += 1;
        } else {
            posted += 1;
        }
        assert!(refusals <= refused.len(), "each is refused once");
    }
    assert_eq!(refusals, refused.len());
}

#[test]
fn control_calls_are_refused_by_plan() {
    let plan = FaultPlan {
        refuse_nth: vec![1, 2],
        ..FaultPlan::default()
    };
    let [a, _] = models();
    let context = Context::new(faulty(a.clone(), plan));
    let pd = context.alloc_pd().expect("the first call");
    let refused = |error| matches!(error, VerbsError::Exhausted { .. });
    assert!(refused(
        pd.allocate(64, Access::EVERYTHING).expect_err("the second")
    ));
    assert!(refused(context.create_cq(4).expect_err("the third")));
    context.create_cq(4).expect("the fourth");

    let plan = FaultPlan {
        refuse_ppm: 1_000_000,
        ..FaultPlan::default()
    };
    let context = Context::new(faulty(a, plan));
    assert!(refused(context.alloc_pd().expect_err("always")));
}
