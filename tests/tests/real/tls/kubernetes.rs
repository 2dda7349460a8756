//! What Kubernetes calls over HTTPS: extender and webhook of a controller of volumes.
//!
//! Method: `curl` in the place of Kubernetes' scheduler and API server.

use std::path::Path;

use berth_tests::processes::csi::DRIVER;
use berth_tests::processes::{Cluster, Host, eventually};
use berth_tls::Role;
use serde_json::{Value, json};

use super::curl;
use crate::PROGRAMS;

/// Goal: extender and webhook are there over HTTPS alone, show a certificate, and ask the scheduler as a
/// controller.
pub(crate) fn kubernetes_calls_a_controller_over_https() {
    let host = |name| Host::new(name).with_volumes("sim", &["region0:1024"], "");
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .host(host("h1"))
        .host(host("h2"))
        .certified()
        .start();
    let _ = cluster.add_csi_controller();
    let listen = cluster.free_address();
    let shown = cluster.certificates().files(Role::CsiController, "shown");
    let token = cluster.folder().join("token");
    std::fs::write(&token, "none").unwrap();
    // A volume that is described in its pod needs no API server.
    let config = format!(
        "[kubernetes]\nlisten = {listen:?}\ncertificate = {:?}\nkey = {:?}\ntoken_file = {token:?}\n\
         ca_file = {:?}\napi_server = \"https://127.0.0.1:9\"\n",
        shown.cert, shown.key, shown.ca
    );
    let file = cluster.folder().join("controller.toml");
    let programs = cluster.programs.clone();
    let part = &mut cluster.csi_controllers[0];
    part.kill();
    // What it was told at first, and this.
    let told = part.arguments.iter().position(|one| one == "--config");
    let told = &mut part.arguments[told.expect("a configuration") + 1];
    let config = std::fs::read_to_string(&*told).unwrap() + &config;
    std::fs::write(&file, config).unwrap();
    *told = file.display().to_string();
    part.start(&programs);
    eventually("a listener", || {
        std::net::TcpStream::connect(&listen).map(drop)
    });

    let ca = cluster.certificates().ca();
    let post = |path: &str, body: &Value| -> Value {
        let mut asked = curl::of(&format!("https://{listen}{path}"), Some(&ca), None);
        asked.args([
            "-H",
            "content-type: application/json",
            "-d",
            &body.to_string(),
        ]);
        serde_json::from_str(&curl::answer(asked).unwrap().1).unwrap()
    };
    let pod = json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": {}}], "volumes": [
            {"name": "v", "csi": {"driver": DRIVER, "volumeAttributes": {"size": "64Mi"}}}
        ]},
    });
    let args = json!({"Pod": pod, "NodeNames": ["h1", "h2", "h3"]});
    eventually("which nodes have room", || {
        let answer = post("/filter", &args);
        let right = answer["NodeNames"] == json!(["h1", "h2"]);
        right.then_some(()).ok_or(answer)
    });
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "namespace": "default",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": pod},
    });
    let answer = post("/pod/mutate", &review);
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    assert_eq!(answer["response"]["patchType"], "JSONPatch", "{answer}");

    refuses(&format!("http://{listen}/status"), Some(&ca));
    refuses(&format!("https://{listen}/status"), None);
}

fn refuses(url: &str, ca: Option<&Path>) {
    let answer = curl::answer(curl::of(url, ca, None));
    assert!(answer.is_err(), "{url}: {answer:?}");
}
