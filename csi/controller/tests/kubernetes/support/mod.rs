//! A place with an API server, a scheduler, and extender and webhook between them.

pub(crate) mod api_server;
pub(crate) mod authority;
pub(crate) mod client;
pub(crate) mod real;
pub(crate) mod scheduler;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use berth_csi_controller::kubernetes::{Options, bind};
use berth_proto::client::{Policy, SchedulerChannel};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use api_server::ApiServer;
use authority::Authority;
use client::{Answer, Client};
use scheduler::Scheduler;

pub(crate) const DRIVER: &str = "test.pmem-csi.example";
pub(crate) const NAMESPACE: &str = "testns";
pub(crate) const GIB: u64 = 1 << 30;

/// Everything that runs.
pub(crate) struct Place {
    pub(crate) api: ApiServer,
    pub(crate) scheduler: Scheduler,
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    pub(crate) client: Client,
    folder: TempDir,
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Place {
    /// Starts everything, with hosts that have regions with so much free.
    pub(crate) async fn start(hosts: &[(&str, &[u64])]) -> Self {
        Self::start_with(hosts, |_| ()).await
    }

    pub(crate) async fn start_with(
        hosts: &[(&str, &[u64])],
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let scheduler = Scheduler::start(hosts).await;
        let url = scheduler.url();
        Self::start_before(DRIVER, scheduler, &url, change).await
    }

    /// Starts everything before a scheduler of Berth's own.
    pub(crate) async fn start_before_real(url: &str) -> Self {
        Self::start_before_real_for(DRIVER, url).await
    }

    /// The same for volumes of this driver.
    pub(crate) async fn start_before_real_for(driver: &str, url: &str) -> Self {
        Self::start_before(driver, Scheduler::start(&[]).await, url, |_| ()).await
    }

    async fn start_before(
        driver: &str,
        scheduler: Scheduler,
        url: &str,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let api = ApiServer::start(&authority).await;
        let file = |name: &str| folder.path().join(name);
        authority
            .issue("localhost")
            .write(&file("tls.crt"), &file("tls.key"));
        std::fs::write(file("ca.crt"), authority.pem()).unwrap();
        std::fs::write(file("token"), api_server::TOKEN).unwrap();
        let mut options = Options {
            listen: Some("127.0.0.1:0".into()),
            certificate: file("tls.crt"),
            key: file("tls.key"),
            api_server: Some(format!("https://localhost:{}", api.address.port())),
            token_file: file("token"),
            ca_file: file("ca.crt"),
            // Machines that run tests may be slow.
            answer_timeout_ms: 60_000,
            client_timeout_ms: 60_000,
            ..Options::default()
        };
        change(&mut options);
        let channel = SchedulerChannel::new([url]).unwrap();
        let channel = channel.with_policy(Policy {
            silence_max: Duration::ZERO,
            ..Policy::default()
        });
        let serving = bind(&options, driver, channel).await.unwrap();
        let serving = serving.with_renewal(Duration::from_millis(20));
        let address = serving.address();
        let (end, ended) = oneshot::channel::<()>();
        let serving = tokio::spawn(serving.run(async move {
            let _ = ended.await;
        }));
        let client = Client::new(address, &authority);
        Self {
            api,
            scheduler,
            authority,
            address,
            client,
            folder,
            end: Some(end),
            serving,
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds the classes of the scenarios.
    pub(crate) fn with_classes(self) -> Self {
        for (name, provisioner, mode) in [
            ("late", DRIVER, "WaitForFirstConsumer"),
            ("immediate", DRIVER, "Immediate"),
            (
                "none",
                "kubernetes.io/no-provisioner",
                "WaitForFirstConsumer",
            ),
            (
                "other",
                "test.pmem-csi.example.other",
                "WaitForFirstConsumer",
            ),
        ] {
            self.api.put_class(name, provisioner, mode);
        }
        self
    }

    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Answer {
        self.client.post(path, body.to_string()).await
    }

    /// Asks which nodes are left of these; returns their names, the failed ones and the error.
    pub(crate) async fn filter(&self, pod: &Value, nodes: &[&str]) -> Filtered {
        let items = nodes.iter().map(|name| json!({"metadata": {"name": name}}));
        let items: Vec<Value> = items.collect();
        let args = json!({"Pod": pod, "Nodes": {"items": items}, "NodeNames": null});
        let answer = self.ask("/filter", &args).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        Filtered::of(&answer.json())
    }

    /// Has it end, as it does when the process is told to.
    pub(crate) async fn end(mut self) {
        let _ = self.end.take().unwrap().send(());
        (&mut self.serving).await.unwrap();
    }
}

/// What a filter answered.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Filtered {
    pub(crate) nodes: Vec<String>,
    pub(crate) failed: Vec<(String, String)>,
    pub(crate) error: String,
}

impl Filtered {
    pub(crate) fn of(answer: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let items = answer["Nodes"]["items"].as_array().into_iter().flatten();
        let failed = answer["FailedNodes"].as_object().into_iter().flatten();
        Self {
            nodes: items.map(|node| text(&node["metadata"]["name"])).collect(),
            failed: failed
                .map(|(node, why)| (node.clone(), text(why)))
                .collect(),
            error: text(&answer["Error"]),
        }
    }
}

/// Returns a pod with these volumes.
pub(crate) fn pod(volumes: &[Value]) -> Value {
    json!({
        "metadata": {"name": "test-pod", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "main", "resources": {}}], "volumes": volumes},
    })
}

pub(crate) fn of_claim(name: &str) -> Value {
    json!({"name": format!("vol-{name}"), "persistentVolumeClaim": {"claimName": name}})
}

pub(crate) fn inline(driver: &str, size: &str) -> Value {
    json!({"name": "vol0", "csi": {"driver": driver, "volumeAttributes": {"size": size}}})
}

/// Returns a claim as the API server tells it.
pub(crate) fn claim(name: &str, class: Option<&str>, size: &str) -> Value {
    json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": "pvc-uid"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
            "storageClassName": class, "volumeMode": "Filesystem",
        },
        "status": {"phase": "Pending"},
    })
}
