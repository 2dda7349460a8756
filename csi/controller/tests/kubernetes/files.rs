//! Files that change while it runs, and files that are wrong when it starts.

use std::path::Path;

use berth_csi_controller::kubernetes::{Options, bind};
use berth_proto::client::SchedulerChannel;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::support::authority::Authority;
use crate::support::{DRIVER, GIB, Place, claim, of_claim, pod};

async fn shown(place: &Place) -> CertificateDer<'static> {
    let stream = place.client.connect().await.unwrap();
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].clone().into_owned()
}

/// Goal: a renewed certificate is shown without a restart, and what does not go together is not.
#[tokio::test]
async fn a_certificate_is_renewed_while_it_runs() {
    let place = Place::start(&[]).await;
    let before = shown(&place).await;
    let issued = place.authority.issue("localhost");
    // Halfway: the new certificate with the old key.
    std::fs::write(place.file("tls.crt"), &issued.certificate).unwrap();
    for _ in 0..10 {
        assert_eq!(shown(&place).await, before);
    }
    issued.write(&place.file("tls.crt"), &place.file("tls.key"));
    let expected = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    while shown(&place).await != expected {
        tokio::task::yield_now().await;
    }
    place.end().await;
}

/// Goal: a token that is refused is read again at once.
#[tokio::test]
async fn a_new_token_is_used_at_once() {
    let place = Place::start(&[("a", &[GIB])]).await.with_classes();
    place.api.put_claim(&claim("c", Some("late"), "1Gi"));
    place.api.expect_token("another-token");
    let pod = pod(&[of_claim("c")]);
    let told = place.filter(&pod, &["a"]).await;
    assert!(
        told.error
            .contains("401 Unauthorized: Unauthorized; the service account's token")
    );
    assert!(!told.error.contains("the-token"), "{told:?}");
    std::fs::write(place.file("token"), "another-token\n").unwrap();
    assert_eq!(place.filter(&pod, &["a"]).await.nodes, ["a"]);
    place.end().await;
}

/// Goal: an API server with another authority's certificate is not believed.
#[tokio::test]
async fn a_stranger_is_not_believed() {
    let place = Place::start_with(&[], |options| {
        std::fs::write(&options.ca_file, Authority::new().pem()).unwrap();
    })
    .await;
    let told = place.filter(&pod(&[of_claim("c")]), &["a"]).await;
    assert!(told.error.contains("invalid peer certificate"), "{told:?}");
    assert!(place.api.asked().is_empty());
    place.end().await;
}

/// Goal: a start that cannot go well fails with the file's name and what is wrong with it.
#[tokio::test]
async fn wrong_files_stop_the_start() {
    let place = Place::start(&[]).await;
    let write = |name: &str, text: &str| {
        std::fs::write(place.file(name), text).unwrap();
        place.file(name)
    };
    let good = Options {
        listen: Some("127.0.0.1:0".into()),
        certificate: place.file("tls.crt"),
        key: place.file("tls.key"),
        token_file: place.file("token"),
        ca_file: place.file("ca.crt"),
        api_server: Some("https://localhost:1".into()),
        ..Options::default()
    };
    let missing = Path::new("/none/such").to_owned();
    let (empty, garbage) = (
        write("empty", ""),
        write("garbage", "-----BEGIN CERTIFICATE-----\nx\n"),
    );
    let other = place.authority.issue("localhost");
    let other_key = write("other.key", &other.key);
    let with = |change: &dyn Fn(&mut Options)| {
        let mut options = good.clone();
        change(&mut options);
        options
    };
    for (options, file, why) in [
        (
            with(&|o| o.certificate = missing.clone()),
            "/none/such",
            "No such file",
        ),
        (
            with(&|o| o.certificate = empty.clone()),
            "/empty",
            "it holds no certificate",
        ),
        (with(&|o| o.certificate = garbage.clone()), "/garbage", ""),
        (with(&|o| o.key = empty.clone()), "/empty", ""),
        (with(&|o| o.key = other_key.clone()), "/other.key", ""),
        (
            with(&|o| o.token_file = missing.clone()),
            "/none/such",
            "No such file",
        ),
        (
            with(&|o| o.token_file = empty.clone()),
            "/empty",
            "it holds no token",
        ),
        (
            with(&|o| o.ca_file = empty.clone()),
            "/empty",
            "it holds no certificate",
        ),
        (
            with(&|o| o.api_server = None),
            "KUBERNETES_SERVICE_HOST",
            "kubernetes.api_server",
        ),
        (with(&|o| o.listen = None), "kubernetes.listen", ""),
    ] {
        let channel = SchedulerChannel::new(["http://127.0.0.1:1"]).unwrap();
        let error = bind(&options, DRIVER, channel).await.unwrap_err();
        let told = berth_process::error_chain(&error);
        assert!(told.contains(file) && told.contains(why), "{told}");
    }
    // An address that is taken.
    let taken = with(&|o| o.listen = Some(place.address.to_string()));
    let channel = SchedulerChannel::new(["http://127.0.0.1:1"]).unwrap();
    let error = bind(&taken, DRIVER, channel).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("failed to listen on 127.0.0.1:"),
        "{error}"
    );
    place.end().await;
}
