//! The Placement REST API over HTTPS.
//!
//! Goal: it is there for operators, and for readers who look; who has no certificate of ours, or that of
//! a part of the cluster, is refused. What a token says is judged beside. Method: `curl`, with every
//! role.

use berth_tests::processes::{Certs, Cluster, eventually};
use berth_tls::{Files, Role};
use serde_json::{Value, json};

use super::curl;
use crate::PROGRAMS;

pub(crate) fn the_rest_api_asks_for_certificates() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .certified()
        .start();
    let listen = cluster.free_address();
    let programs = cluster.programs.clone();
    let member = &mut cluster.schedulers[0];
    member.kill();
    member.start_with(
        &programs,
        &[
            "--placement-listen",
            &listen,
            "--placement-profile",
            "default",
        ],
    );
    eventually("a listener", || {
        std::net::TcpStream::connect(&listen).map(drop)
    });
    let server = Server {
        url: format!("https://{listen}"),
        ca: cluster.certificates().ca(),
    };
    every_role_may_what_the_table_says(&cluster, &server);
    the_wrong_get_no_answer(&cluster, &server);

    // The audit tells both who had the certificate and who had the token.
    let listed = cluster.json(&["audit", "list"]);
    let principals = listed.as_array().unwrap().iter();
    let both = "placement:admin through operator:ann";
    let known = principals
        .filter(|entry| entry["principal"] == both)
        .count();
    assert_eq!(known, 1, "{listed:#}");
}

struct Server {
    url: String,
    ca: std::path::PathBuf,
}

impl Server {
    fn ask(
        &self,
        files: Option<&Files>,
        token: Option<&str>,
        method: &str,
        path: &str,
    ) -> Result<(u16, String), String> {
        let mut command = curl::of(&format!("{}{path}", self.url), Some(&self.ca), files);
        command.args(["-X", method, "-H", "OpenStack-API-Version: placement 1.39"]);
        if let Some(token) = token {
            command.args(["-H", &format!("X-Auth-Token: {token}")]);
        }
        curl::answer(command)
    }
}

fn every_role_may_what_the_table_says(cluster: &Cluster, server: &Server) {
    let class = "/resource_classes/CUSTOM_OF_ANN";
    for role in Role::ALL {
        let files = cluster.certificates().files(role, "ann");
        let ask = |token, method: &str, path: &str| {
            server.ask(Some(&files), token, method, path).unwrap()
        };
        let looks = matches!(role, Role::Operator | Role::Reader);
        let writes = role == Role::Operator;
        let (status, body) = ask(Some("admin"), "GET", "/resource_classes");
        assert_eq!(status, if looks { 200 } else { 403 }, "{role}: {body}");
        let (status, body) = ask(Some("admin"), "PUT", class);
        assert_eq!(status, if writes { 201 } else { 403 }, "{role}: {body}");
        if !writes {
            let told = format!("{role}:ann may not do this: that is for operators");
            assert!(body.contains(&told), "{body}");
        }
        // A certificate is no token.
        let (status, body) = ask(None, "GET", "/resource_classes");
        assert_eq!(status, if looks { 401 } else { 403 }, "{role}: {body}");
    }
    let ann = cluster.certificates().files(Role::Operator, "ann");
    let (status, body) = server
        .ask(
            Some(&ann),
            Some("somebody"),
            "PUT",
            "/resource_classes/CUSTOM_B",
        )
        .unwrap();
    assert_eq!(status, 403, "the token is judged too: {body}");
    // What is named in answers is reached as the answer was.
    let (_, body) = server.ask(Some(&ann), Some("admin"), "GET", class).unwrap();
    let shown: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(shown["name"], json!("CUSTOM_OF_ANN"));
}

fn the_wrong_get_no_answer(cluster: &Cluster, server: &Server) {
    let get = |files: Option<&Files>| server.ask(files, Some("admin"), "GET", "/");
    let ann = cluster.certificates().files(Role::Operator, "ann");
    assert_eq!(get(Some(&ann)).unwrap().0, 200);
    assert!(get(None).is_err(), "without a certificate");
    let foreign = Certs::new(cluster.folder().join("foreign"), [127, 0, 0, 1].into());
    let stranger = foreign.files(Role::Operator, "ann");
    assert!(get(Some(&stranger)).is_err(), "of another authority");
    let strange = Server {
        url: server.url.clone(),
        ca: foreign.ca(),
    };
    let asked = strange.ask(Some(&ann), Some("admin"), "GET", "/");
    assert!(asked.is_err(), "the server is not who is trusted");
    let plain = Server {
        url: server.url.replace("https", "http"),
        ca: server.ca.clone(),
    };
    let asked = plain.ask(None, Some("admin"), "GET", "/");
    assert!(asked.is_err(), "in plain text");
}
