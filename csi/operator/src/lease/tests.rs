//! Goal: of two operators one holds the lease, keeps it while it renews, and another one has it as soon as
//! it is released; a failed renewal extends nothing. Method: rounds of two holders at one server.

use serde_json::json;

use super::*;
use crate::fake_server::{Fault, Shared, start};
use crate::permit::Permit;

const DURATION: Duration = Duration::from_secs(600);
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/berth/leases/berth-csi-operator";

fn holder(server: &ApiServer, name: &str) -> Holder {
    let server = ApiServer {
        permit: Permit::new(),
        ..server.clone()
    };
    Holder::new(server, "berth", name, DURATION, watch::channel(false).0)
}

fn stored(store: &Shared) -> (String, i64) {
    let store = store.lock().expect("not poisoned");
    let spec = &store.objects[PATH]["spec"];
    let name = spec["holderIdentity"].as_str().expect("a name").to_owned();
    (name, spec["leaseTransitions"].as_i64().expect("a number"))
}

async fn round(holder: &mut Holder) -> Result<bool, Error> {
    holder.round(DURATION / RENEWALS).await?;
    Ok(holder.server.permit.is_valid())
}

#[tokio::test]
async fn one_of_two_is_active() {
    let (store, server) = start().await;
    let (mut a, mut b) = (holder(&server, "a"), holder(&server, "b"));
    assert!(round(&mut a).await.expect("a round"));
    assert!(!round(&mut b).await.expect("a round"));
    assert!(round(&mut a).await.expect("a round"));
    assert_eq!(stored(&store), ("a".to_owned(), 1));
    a.release().await;
    assert!(!a.server.permit.is_valid());
    assert_eq!(stored(&store).0, "");
    assert!(round(&mut b).await.expect("a round"));
    assert!(!round(&mut a).await.expect("a round"));
    // What another one holds is not released.
    a.release().await;
    assert_eq!(stored(&store), ("b".to_owned(), 3));
}

/// Goal: an API server that takes longer than the interval between two renewals does not keep every operator
/// from becoming active.
#[tokio::test]
async fn a_slow_server_has_an_active_operator() {
    let (store, server) = start().await;
    let mut a = holder(&server, "a");
    a.duration = Duration::from_secs(5);
    // A round is two requests.
    store.lock().expect("not poisoned").delay = a.duration / RENEWALS * 2 / 3;
    let (sender, mut leading) = watch::channel(false);
    a.leading = sender;
    let elected = async {
        tokio::select! {
            () = a.run() => {}
            seen = leading.wait_for(|leading| *leading) => assert!(*seen.expect("it runs")),
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, elected)
        .await
        .expect("elected");
}

/// Goal: an operator whose lease was taken over while it was suspended does not write.
#[tokio::test]
async fn a_lease_that_was_taken_over_ends_the_permit() {
    let (store, server) = start().await;
    let mut a = holder(&server, "a");
    assert!(round(&mut a).await.expect("a round"));
    {
        let mut store = store.lock().expect("not poisoned");
        let lease = store.objects.get_mut(PATH).expect("a lease");
        lease["spec"]["holderIdentity"] = json!("b");
        lease["metadata"]["resourceVersion"] = json!("99");
    }
    assert!(!round(&mut a).await.expect("a round"));
}

/// Goal: only a successful write makes an operator active, in each way in which a request can fail.
#[tokio::test]
async fn a_failed_write_makes_no_operator_active() {
    for fault in [
        Fault::Refused(403),
        Fault::Refused(409),
        Fault::Refused(500),
        Fault::Lost,
    ] {
        for at in 0..2 {
            let (store, server) = start().await;
            store.lock().expect("not poisoned").fault = Some((at, fault));
            let mut a = holder(&server, "a");
            assert!(round(&mut a).await.is_err(), "{fault:?} at {at}");
            assert!(!a.server.permit.is_valid());
            assert!(round(&mut a).await.expect("a round"), "{fault:?} at {at}");
        }
    }
}
