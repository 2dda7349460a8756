//! Many users at once, who remember what was promised to them.
//!
//! Each boots two VMs and deletes the first. A request that is not answered is sent again with the
//! same request id, as a user would do who wants to know what became of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use berth_domain::refusal::{Code, Refusal};
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::conductor::v1::{CreateVmRequest, DeleteVmRequest};
use berth_proto::operation::v1::Operation;
use berth_proto::status::from_status;
use berth_proto::types::v1 as wire;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::transport::Channel;
use uuid::Uuid;

use berth_testkit::wait::{GLANCE, PATIENCE};

/// A request, and what was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The VM.
    pub vm: String,
    /// Whether it is to be deleted rather than booted.
    pub delete: bool,
    /// The operation's id.
    pub operation: String,
}

/// Users at work, in a thread of their own.
#[derive(Debug)]
pub struct Load {
    promised: Arc<Mutex<Vec<Promise>>>,
    working: JoinHandle<Result<()>>,
}

impl Load {
    /// Puts so many users to work at the conductor at this address.
    ///
    /// # Panics
    ///
    /// When there can be no runtime.
    #[must_use]
    pub fn start(conductor: &str, flavor: &str, users: u32) -> Self {
        let promised: Arc<Mutex<Vec<Promise>>> = Arc::default();
        let channel = format!("http://{conductor}");
        let (flavor, record) = (format!("flavors/{flavor}"), Arc::clone(&promised));
        let working = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            tokio::task::LocalSet::new().block_on(&runtime, async {
                let channel = berth_proto::client::channel(&channel)?;
                let mut working = JoinSet::new();
                for number in 0..users {
                    let user = User {
                        number,
                        client: ConductorServiceClient::new(channel.clone()),
                        flavor: flavor.clone(),
                        promised: Arc::clone(&record),
                    };
                    working.spawn_local(user.work());
                }
                while let Some(ended) = working.join_next().await {
                    ended??;
                }
                Ok(())
            })
        });
        Self { promised, working }
    }

    /// Returns what has been promised so far.
    #[must_use]
    pub fn promised(&self) -> Vec<Promise> {
        copy(&self.promised)
    }

    /// Waits until all requests of all users succeeded, and returns every promise.
    ///
    /// # Panics
    ///
    /// When one was refused.
    #[track_caller]
    #[must_use]
    pub fn finish(self) -> Vec<Promise> {
        let ended = self.working.join().expect("users do not panic");
        ended.expect("every request succeeds");
        copy(&self.promised)
    }
}

fn copy(promised: &Mutex<Vec<Promise>>) -> Vec<Promise> {
    promised
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

struct User {
    number: u32,
    client: ConductorServiceClient<Channel>,
    flavor: String,
    promised: Arc<Mutex<Vec<Promise>>>,
}

impl User {
    async fn work(self) -> Result<()> {
        let (first, second) = (
            format!("vm-{}-a", self.number),
            format!("vm-{}-b", self.number),
        );
        self.boot(&first).await?;
        self.boot(&second).await?;
        self.delete(&first).await
    }

    async fn boot(&self, vm: &str) -> Result<()> {
        let kernel = wire::KernelBoot {
            kernel: "vmlinuz".to_owned(),
            initrd: "initrd.gz".to_owned(),
            cmdline: String::new(),
        };
        let request = CreateVmRequest {
            vm: format!("vms/{vm}"),
            template: Some(wire::VmTemplate {
                flavor: self.flavor.clone(),
                boot: Some(wire::BootSource {
                    source: Some(wire::boot_source::Source::Kernel(kernel)),
                }),
                ..Default::default()
            }),
            requested_host: String::new(),
            request_id: Uuid::new_v4().to_string(),
        };
        let operation = insist(async || {
            let answer = self.client.clone().create_vm(request.clone()).await?;
            Ok(answer.into_inner().operation)
        });
        self.remember(vm, false, operation.await?)
    }

    async fn delete(&self, vm: &str) -> Result<()> {
        let request = DeleteVmRequest {
            vm: format!("vms/{vm}"),
            request_id: Uuid::new_v4().to_string(),
        };
        let operation = insist(async || {
            let answer = self.client.clone().delete_vm(request.clone()).await?;
            Ok(answer.into_inner().operation)
        });
        self.remember(vm, true, operation.await?)
    }

    fn remember(&self, vm: &str, delete: bool, operation: Operation) -> Result<()> {
        let promise = Promise {
            vm: vm.to_owned(),
            delete,
            operation: operation.name.trim_start_matches("operations/").to_owned(),
        };
        let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        promised.push(promise);
        Ok(())
    }
}

/// Repeats a request as long as it is not answered, or the VM is still busy with the one before.
async fn insist(ask: impl AsyncFn() -> Result<Option<Operation>, Status>) -> Result<Operation> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let refusal: Refusal = match ask().await {
            Ok(operation) => return operation.context("an answer without operation"),
            Err(status) => from_status(&status),
        };
        let unanswered = matches!(refusal.code, Code::Unavailable | Code::DeadlineExceeded);
        let again = unanswered || refusal.reason == "VM_BUSY" || refusal.reason == "VM_NOT_ACTIVE";
        if !again || Instant::now() >= deadline {
            bail!("{refusal:?}");
        }
        tokio::time::sleep(GLANCE).await;
    }
}
