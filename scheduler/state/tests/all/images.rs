//! Goal: an image is added once, is ready when its first host has it, stays as long as a VM has it, and is
//! recorded for no host that is not there. Method: each command in each state of an image.

use berth_domain::id::TimeMs;
use berth_domain::image::{COPIES_MAX, Image, ImageFile};
use berth_domain::operation::Kind;
use berth_domain::refusal::Refusal;
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};
use berth_domain::vm::{BootSource, Disk, DiskFormat, VmSpec};
use berth_state::command::{Command, Envelope};
use berth_state::{Reply, Row, State};
use berth_testkit::state::*;

fn complete(image: &Image, host: &str) -> Command {
    Command::CompleteImage {
        image: image.name.clone(),
        uid: image.uid,
        content: image_content(),
        host: host_name(host),
    }
}

fn copied(image: &Image, host: &str, present: bool) -> Command {
    Command::SetImageCopy {
        image: image.name.clone(),
        uid: image.uid,
        host: host_name(host),
        present,
    }
}

fn delete(image: &Image) -> Command {
    Command::DeleteImage {
        image: image.name.clone(),
        uid: None,
    }
}

fn spec_of(file: &ImageFile) -> VmSpec {
    let mut spec = pinned(1);
    spec.flavor.disk_gib = 4;
    spec.disks = vec![Disk {
        image: Some(file.to_string()),
        format: DiskFormat::Qcow2,
        size_gib: 4,
        seed: false,
    }];
    spec
}

fn copies(world: &World, image: &Image) -> Vec<String> {
    let image = world.state.image(&image.name).expect("it is there");
    image.copies.iter().map(ToString::to_string).collect()
}

/// Returns the reason of a refusal that changed nothing.
#[track_caller]
fn refused(world: &mut World, command: Command) -> Refusal {
    let before = world.state.images().clone();
    let refusal = world.run(command).expect_err("it is refused");
    assert_eq!(world.state.images(), &before);
    refusal
}

#[test]
fn an_image_is_added_copied_and_removed() {
    let mut world = World::with_hosts(3);
    let debian = image("debian");
    let Ok(Reply::Image(begun)) = world.run(Command::CreateImage(debian.clone())) else {
        panic!("it is not added");
    };
    assert_eq!((begun.content, begun.copies.len()), (None, 0));
    let again = refused(&mut world, Command::CreateImage(debian.clone()));
    assert_eq!(again.reason, "IMAGE_EXISTS");
    assert!(again.hint.unwrap().contains("berth image remove debian"));
    let early = refused(&mut world, copied(&debian, "h1", true));
    assert_eq!(early.reason, "IMAGE_NOT_READY");

    world.run(complete(&debian, "h1")).unwrap();
    world.run(complete(&debian, "h1")).unwrap();
    let mut other = complete(&debian, "h1");
    if let Command::CompleteImage { content, .. } = &mut other {
        content.length_bytes += 1;
    }
    assert_eq!(refused(&mut world, other).reason, "IMAGE_DIFFERS");
    for host in ["h2", "h3", "h2"] {
        world.run(copied(&debian, host, true)).unwrap();
    }
    assert_eq!(copies(&world, &debian), ["h1", "h2", "h3"]);
    world.run(copied(&debian, "h1", false)).unwrap();
    let unknown = refused(&mut world, copied(&debian, "h9", true));
    assert_eq!(unknown.reason, "HOST_NOT_FOUND");

    // A host that leaves takes its copies along.
    world
        .run(Command::RemoveHost {
            host: host_name("h2"),
        })
        .unwrap();
    assert_eq!(copies(&world, &debian), ["h3"]);

    world.run(delete(&debian)).unwrap();
    for command in [
        complete(&debian, "h1"),
        copied(&debian, "h1", true),
        delete(&debian),
    ] {
        assert_eq!(refused(&mut world, command).reason, "IMAGE_NOT_FOUND");
    }
    // Another one of the name is not what earlier commands are about.
    let mut second = debian.clone();
    second.uid = image("golden").uid;
    world.run(Command::CreateImage(second.clone())).unwrap();
    assert_ne!(second.file(), debian.file());
    for command in [
        complete(&debian, "h1"),
        Command::DeleteImage {
            image: debian.name.clone(),
            uid: Some(debian.uid),
        },
    ] {
        assert_eq!(refused(&mut world, command).reason, "IMAGE_NOT_FOUND");
    }
    world.state.check().unwrap();
    assert!(State::from_rows(world.state.rows()).unwrap() == world.state);
}

/// Goal: an image stays as long as a VM has it: as a disk, as a kernel, and while one is rebuilt from it.
#[test]
fn an_image_in_use_is_not_removed() {
    let mut world = World::with_hosts(2);
    let (debian, golden) = (image("debian"), image("golden"));
    for image in [&debian, &golden] {
        world.run(Command::CreateImage(image.clone())).unwrap();
    }
    let file = debian.file();
    // Not one that is still being added, and not one that is not there.
    let early = world.begin_boot("a", &spec_of(&file), "h1");
    assert_eq!(early.unwrap_err().reason, "IMAGE_NOT_READY");
    let missing = ImageFile::new(debian.name.clone(), golden.uid);
    let none = world.begin_boot("a", &spec_of(&missing), "h1");
    assert_eq!(none.unwrap_err().reason, "IMAGE_NOT_FOUND");
    for image in [&debian, &golden] {
        world.run(complete(image, "h1")).unwrap();
    }

    world.boot("a", &spec_of(&file), "h1");
    let mut by_kernel = pinned(1);
    by_kernel.boot = BootSource::Kernel {
        kernel: file.to_string(),
        initrd: String::new(),
        cmdline: String::new(),
    };
    world.boot("b", &by_kernel, "h1");
    let refusal = refused(&mut world, delete(&debian));
    assert_eq!(refusal.reason, "IMAGE_IN_USE");
    assert_eq!(
        (&*refusal.metadata["vms"], &*refusal.metadata["vm"]),
        ("2", "a")
    );
    world.delete("b");
    assert_eq!(refused(&mut world, delete(&debian)).metadata["vms"], "1");

    let kind = Kind::Rebuild {
        images: vec![golden.file().to_string()],
    };
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world
        .run(Command::BeginPower {
            operation,
            vm: vm_name("a"),
            kind,
            lease,
            by_policy: false,
        })
        .unwrap();
    for image in [&debian, &golden] {
        assert_eq!(refused(&mut world, delete(image)).reason, "IMAGE_IN_USE");
    }
    let unknown = Kind::Rebuild {
        images: vec![missing.to_string()],
    };
    world.boot("c", &spec_of(&file), "h2");
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let refusal = world.run(Command::BeginPower {
        operation,
        vm: vm_name("c"),
        kind: unknown,
        lease,
        by_policy: false,
    });
    assert_eq!(refusal.unwrap_err().reason, "IMAGE_NOT_FOUND");
}

#[test]
fn there_are_no_images_before_their_version() {
    for version in 1..=4 {
        let version = ServiceVersion(version);
        let mut world = World::at_version(version, 1);
        let outcome = world.run(Command::CreateImage(image("debian")));
        match version >= ServiceVersion::IMAGES {
            true => assert!(outcome.is_ok(), "{outcome:?}"),
            false => assert_eq!(reason(&outcome), CLUSTER_TOO_OLD),
        }
    }
}

/// Goal: a file is deleted only where nothing needs it. Method: one of an image, of VMs as their disk, their
/// kernel and what they are rebuilt from, and of nothing; before, in and after a recovery.
#[test]
fn files_that_are_needed_are_kept() {
    let mut world = World::with_hosts(1);
    let (debian, golden) = (image("debian"), image("golden"));
    let gone = ImageFile::new(debian.name.clone(), golden.uid);
    for image in [&debian, &golden] {
        world.run(Command::CreateImage(image.clone())).unwrap();
        world.run(complete(image, "h1")).unwrap();
    }
    let mut spec = spec_of(&debian.file());
    spec.boot = BootSource::Kernel {
        kernel: golden.file().to_string(),
        initrd: String::new(),
        cmdline: String::new(),
    };
    world.boot("a", &spec, "h1");
    let all = || [debian.file(), golden.file(), gone.clone()].into();
    assert_eq!(world.state.unused_files(&all()), [gone.clone()].into());
    // A state from before the images knows them by its VMs only.
    let mut older = world.state.clone();
    let rows = older.rows().filter(|row| !matches!(row, Row::Image(_)));
    older = State::from_rows(rows).unwrap();
    assert_eq!(older.unused_files(&all()), [gone.clone()].into());
    world.delete("a");
    for image in [&debian, &golden] {
        world.run(delete(image)).unwrap();
    }
    assert_eq!(world.state.unused_files(&all()), all());
}

/// Goal: no more copies are recorded than a row may have, whichever command brings one more. Method: an image
/// with as many copies, of hosts that need not be there.
#[test]
fn copies_are_bounded() {
    let mut world = World::with_hosts(2);
    let debian = image("debian");
    world.run(Command::CreateImage(debian.clone())).unwrap();
    world.run(complete(&debian, "h1")).unwrap();
    let full = |row: Row| {
        let Row::Image(image) = &row else {
            return row;
        };
        let mut full = (**image).clone();
        let more = (1..COPIES_MAX).map(|number| host_name(&format!("other-{number}")));
        full.copies.extend(more);
        Row::Image(full.into())
    };
    let mut state = State::from_rows(world.state.rows().map(full)).unwrap();
    for command in [complete(&debian, "h2"), copied(&debian, "h2", true)] {
        let envelope = Envelope {
            at: TimeMs(1),
            principal: "unverified:test".to_owned(),
            request: None,
            audit: None,
            command,
        };
        let revision = state.revision() + 1;
        state.apply(revision, &envelope).outcome.unwrap();
        let image = state.image(&debian.name).unwrap();
        assert_eq!(image.copies.len(), COPIES_MAX);
        assert!(!image.copies.contains(&host_name("h2")));
    }
}
