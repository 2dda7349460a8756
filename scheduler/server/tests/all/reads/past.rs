//! Every read at an earlier revision is answered as it was then.
//!
//! Goal: with a revision in its metadata a read gives the answer that a linearizable read gave at that
//! revision, at every member, whatever was changed since; what lasts, changes or is not of one state is
//! refused, and so is a revision that is not kept or was not reached. Method: every method of every service,
//! enumerated from the descriptors, before and after changes of all tables.

use berth_process::bounds::methods::WATCHES;
use berth_proto::consistency::{Consistency, Staleness};
use berth_proto::status::from_status;

use super::case::{self, Kind};
use super::raw::{self, Answer};
use super::stale::{all_answers, assert_same, request};
use super::world::World;
use crate::common::{connect, eventually};

const LIST: &str = "/berth.scheduler.v1.SchedulerService/ListVms";

async fn call(
    address: &str,
    path: &str,
    request: &[u8],
    revision: u64,
) -> (Answer, Option<Staleness>) {
    let channel = connect(&format!("http://{address}")).await;
    raw::call_over(
        channel,
        path,
        request,
        Some(Consistency::Revision(revision)),
    )
    .await
}

async fn refused(address: &str, path: &str, request: &[u8], revision: u64) -> String {
    let ((messages, end), _) = call(address, path, request, revision).await;
    assert!(messages.is_empty(), "{path}");
    from_status(&end.expect_err(path)).reason
}

fn is_of_a_state(path: &str) -> bool {
    let method = path.trim_start_matches('/');
    let has_no_state = ["/GetHistory", "/GetLogLevel"];
    !WATCHES.contains(&method) && !has_no_state.iter().any(|name| path.ends_with(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_revision_is_read_as_it_was() {
    let world = World::start().await;
    let (before, revision) = all_answers(&world).await;
    world.make_more().await;
    let mut changed = 0;
    for address in &world.trio.grpc {
        let mut member = None;
        for (path, expected) in before.iter().filter(|(path, _)| is_of_a_state(path)) {
            let request = request(path, &world);
            let (answer, known) = call(address, path, &request, revision).await;
            let known = known.unwrap_or_else(|| panic!("{path}: {answer:?}"));
            assert_eq!((known.revision, known.age), (revision, None), "{path}");
            assert_eq!(*member.get_or_insert(known.member), known.member);
            assert_same(path, answer, expected);
            let now = raw::call_stale(address, path, &request).await.0;
            changed += u32::from(!raw::are_equal(&now, expected));
        }
    }
    println!(
        "{} reads, of which {changed} answer otherwise now",
        before.len()
    );
    assert!(changed > 60, "{changed}");
    for address in &world.trio.grpc {
        for path in case::methods() {
            let is_read = matches!(case::kind(&path), Kind::Read | Kind::Own);
            if is_read && is_of_a_state(&path) {
                continue;
            }
            let reason = refused(address, &path, &[], revision).await;
            assert_eq!(reason, "REVISION_NOT_A_READ", "{path}");
        }
        let reason = refused(address, LIST, &[], u64::MAX).await;
        assert_eq!(reason, "REVISION_NOT_REACHED");
        let reason = refused(address, LIST, &[], 0).await;
        assert_eq!(reason, "REVISION_NOT_KEPT");
        // Another revision takes the place of the one that was kept.
        let (answer, known) = call(address, LIST, &[], revision - 1).await;
        answer.1.expect("it is kept");
        assert!(known.is_some_and(|known| known.revision < revision));
    }
}

/// Goal: who reads many revisions at once is refused beyond the plans of one caller, and does not delay
/// others with each of them; many reads of one revision are all answered.
#[tokio::test(flavor = "multi_thread")]
async fn many_revisions_at_once_are_refused() {
    let world = World::start().await;
    world.make_more().await;
    let revision = eventually("one revision of all members", || world.revision()).await;
    let channel = connect(&format!("http://{}", world.trio.grpc[0])).await;
    let at_once = |revisions: Vec<u64>| {
        let calls = revisions.into_iter().map(|revision| {
            let channel = channel.clone();
            tokio::spawn(async move {
                let at = Some(Consistency::Revision(revision));
                raw::call_over(channel, LIST, &[], at).await.0.1
            })
        });
        let calls: Vec<_> = calls.collect();
        async {
            let mut reasons = Vec::new();
            for call in calls {
                let end = call.await.expect("no panic");
                reasons.extend(end.err().map(|status| from_status(&status).reason));
            }
            reasons
        }
    };
    let revisions: Vec<u64> = (revision - 11..=revision).collect();
    let reasons = at_once(revisions).await;
    assert!((1..12).contains(&reasons.len()), "{reasons:?}");
    assert!(reasons.iter().all(|r| r == "PLANNER_BUSY"), "{reasons:?}");
    let (answer, _) = call(&world.trio.grpc[0], LIST, &[], revision).await;
    answer.1.expect("a plan is free again");
    assert_eq!(at_once(vec![revision; 24]).await, [""; 0]);
}
