//! What libtorch can do on a GPU and `tch` does not offer: CUDA graphs (the kernels of a step, recorded once and replayed
//! with one call), attention over packed sequences, and kernels that are compiled at run time. A small C++ library,
//! compiled with this crate and embedded in the program, is loaded where libtorch's CUDA part is available; otherwise the
//! reason is reported.
#![expect(unsafe_code, reason = "a library loaded at run time has no safe interface")]

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void},
    fs::File,
    io::Write as _,
    os::fd::AsRawFd as _,
    ptr::NonNull,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use rustix::fs::MemfdFlags;
use tch::{Device, Tensor};

/// The library; empty where this crate was compiled without CUDA headers.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/graph.so"));

/// CUDA or its graphs cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CudaError {
    /// libtorch's CUDA part, or something it needs, is missing.
    #[error(
        "cannot load libtorch's CUDA part ({0}); LD_LIBRARY_PATH must contain the `lib` directory of a PyTorch with CUDA"
    )]
    Missing(String),
    /// There is no device.
    #[error("libtorch sees no CUDA device; is the driver installed?")]
    NoDevice,
    /// The program was compiled without CUDA's headers.
    #[error("the program was compiled without CUDA's headers")]
    NotCompiled,
    /// The embedded library cannot be loaded.
    #[error("cannot load the library for CUDA graphs: {0}")]
    NotLoaded(String),
    /// The network is on the CPU.
    #[error("the network is not on a CUDA device")]
    NotOnDevice,
    /// The device lacks matrix instructions for 16 bits.
    #[error("the device has compute capability {}.{}, and {MATRIX_CAPABILITY}.0 is needed", .0.0, .0.1)]
    Capability((i32, i32)),
    /// The shape or precision of the network does not suit.
    #[error("{0}")]
    Unsuitable(&'static str),
    /// A CUDA call failed.
    #[error("CUDA failed: {0}")]
    Failed(String),
}

/// The first compute capability with asynchronous copies and matrix instructions for bfloat16, which our own kernels and
/// libtorch's packed attention use.
const MATRIX_CAPABILITY: i32 = 8;

/// Loads libtorch's CUDA part, so that `tch` sees the devices. Must be called before anything else uses CUDA through
/// `tch`: libtorch checks only once.
pub fn load_cuda() -> Result<(), CudaError> {
    open(c"libtorch_cuda.so", libc::RTLD_LAZY | libc::RTLD_GLOBAL).map_err(CudaError::Missing)?;
    match tch::Cuda::is_available() {
        true => Ok(()),
        false => Err(CudaError::NoDevice),
    }
}

/// `lis_attention_packed` of `cuda/attention.cpp`: five tensors, then the longest queries and keys of a sequence.
type PackedAttention = unsafe extern "C" fn(
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    c_longlong,
    c_longlong,
) -> *mut c_void;

/// `lis_attention_forward`: as [`PackedAttention`], then room for four tensors.
type AttentionForward = unsafe extern "C" fn(
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    c_longlong,
    c_longlong,
    *mut *mut c_void,
) -> c_int;

/// `lis_attention_backward`: a gradient, then as [`PackedAttention`], four tensors and room for three.
type AttentionBackward = unsafe extern "C" fn(
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    c_longlong,
    c_longlong,
    *const *const c_void,
    *mut *mut c_void,
) -> c_int;

/// Queries, keys and values of packed sequences, and where the sequences are; shapes are in `cuda/attention.cpp`.
#[derive(Clone, Copy)]
pub(crate) struct PackedHeads<'a> {
    /// Queries, keys and values.
    pub(crate) heads: [&'a Tensor; 3],
    /// Where the sequences begin and end in queries and in keys.
    pub(crate) ends: [&'a Tensor; 2],
    /// The most queries and keys of a sequence.
    pub(crate) longest: [i64; 2],
}

/// What attention over packed sequences computed, without a gradient graph.
pub(crate) struct Attended {
    /// The result, and three tensors that its gradient needs.
    tensors: [Tensor; 4],
}

impl Attended {
    /// The result, `[tokens, heads, head_dim]`.
    pub(crate) fn result(&self) -> &Tensor {
        &self.tensors[0]
    }
}

/// The functions of the library. They act on the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuda {
    stream_own: unsafe extern "C" fn(c_int) -> c_int,
    stream_wait: unsafe extern "C" fn() -> c_int,
    graph_begin: unsafe extern "C" fn() -> *mut c_void,
    graph_end: unsafe extern "C" fn(*mut c_void) -> c_int,
    graph_replay: unsafe extern "C" fn(*mut c_void) -> c_int,
    graph_free: unsafe extern "C" fn(*mut c_void),
    memory_free: unsafe extern "C" fn(c_int, *mut c_ulonglong) -> c_int,
    device_capability: Capability,
    module_compile: Compile,
    module_free: unsafe extern "C" fn(c_int, *mut c_void),
    kernel_find: Find,
    kernel_launch: Launch,
    attention_packed: PackedAttention,
    attention_forward: AttentionForward,
    attention_backward: AttentionBackward,
    error: unsafe extern "C" fn() -> *const c_char,
}

type Compile =
    unsafe extern "C" fn(c_int, *const c_char, *const *const c_char, c_int) -> *mut c_void;
type Capability = unsafe extern "C" fn(c_int, *mut c_int, *mut c_int) -> c_int;
type Find = unsafe extern "C" fn(c_int, *mut c_void, *const c_char, c_int) -> *mut c_void;
type Launch = unsafe extern "C" fn(
    c_int,
    *mut c_void,
    *const c_uint,
    c_uint,
    c_uint,
    *mut *mut c_void,
) -> c_int;

impl Cuda {
    /// Loads the library, once per process.
    pub(crate) fn load() -> Result<Self, CudaError> {
        static LOADED: OnceLock<Result<Cuda, CudaError>> = OnceLock::new();
        LOADED.get_or_init(load).clone()
    }

    /// Loads the library for a device with matrix instructions, which is checked once per device.
    pub(crate) fn with_matrix_instructions(device: Device) -> Result<Self, CudaError> {
        static CHECKED: Mutex<BTreeMap<usize, Result<Cuda, CudaError>>> =
            Mutex::new(BTreeMap::new());
        let Device::Cuda(number) = device else { return Err(CudaError::NotOnDevice) };
        let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
        let check = || {
            let cuda = Self::load()?;
            has_matrix_instructions(cuda.capability(number)?).map(|()| cuda)
        };
        checked.entry(number).or_insert_with(check).clone()
    }

    /// The compute capability of a device: its major and minor number.
    fn capability(self, device: usize) -> Result<(i32, i32), CudaError> {
        let (device, mut major, mut minor) = (index(device)?, 0, 0);
        // SAFETY: the pointers are to numbers that outlive the call.
        let status = unsafe { (self.device_capability)(device, &raw mut major, &raw mut minor) };
        self.checked(status).map(|()| (major, minor))
    }

    /// Gives the calling thread its own stream on this device.
    pub(crate) fn own_stream(self, device: usize) -> Result<(), CudaError> {
        let device = index(device)?;
        // SAFETY: the function takes a number, checks it, and keeps its exceptions to itself.
        self.checked(unsafe { (self.stream_own)(device) })
    }

    /// Waits for all work on the calling thread's stream.
    pub(crate) fn wait(self) -> Result<(), CudaError> {
        // SAFETY: the function takes nothing and keeps its exceptions to itself.
        self.checked(unsafe { (self.stream_wait)() })
    }

    /// The free memory of the device, in bytes.
    pub(crate) fn free_memory(self, device: usize) -> Result<u64, CudaError> {
        let device = index(device)?;
        let mut bytes = 0;
        // SAFETY: the pointer is to a number that outlives the call.
        self.checked(unsafe { (self.memory_free)(device, &raw mut bytes) })?;
        Ok(bytes)
    }

    /// Causal attention over packed sequences, with its gradient graph.
    pub(crate) fn attention(self, packed: PackedHeads<'_>) -> Result<Tensor, CudaError> {
        let [queries, keys, values] = packed.heads.map(address);
        let [query_ends, key_ends] = packed.ends.map(address);
        let [most_queries, most_keys] = packed.longest;
        // SAFETY: the pointers are to tensors that outlive the call, and libtorch checks their shapes.
        let attended = unsafe {
            (self.attention_packed)(
                queries,
                keys,
                values,
                query_ends,
                key_ends,
                most_queries,
                most_keys,
            )
        };
        match NonNull::new(attended) {
            // SAFETY: a new tensor, which the library gives away.
            Some(attended) => Ok(unsafe { given(attended) }),
            None => Err(self.last_error()),
        }
    }

    /// Causal attention over packed sequences, without a gradient graph.
    pub(crate) fn attention_forward(self, packed: PackedHeads<'_>) -> Result<Attended, CudaError> {
        let [queries, keys, values] = packed.heads.map(address);
        let [query_ends, key_ends] = packed.ends.map(address);
        let [most_queries, most_keys] = packed.longest;
        let mut found = [std::ptr::null_mut(); 4];
        // SAFETY: the pointers are to tensors that outlive the call, libtorch checks their shapes, and there is room for
        // the results.
        let status = unsafe {
            (self.attention_forward)(
                queries,
                keys,
                values,
                query_ends,
                key_ends,
                most_queries,
                most_keys,
                found.as_mut_ptr(),
            )
        };
        self.checked(status)?;
        let tensors = found.map(|tensor| {
            // SAFETY: where the call succeeds, these are new tensors, which the library gives away.
            NonNull::new(tensor).map(|tensor| unsafe { given(tensor) })
        });
        match tensors {
            [Some(first), Some(second), Some(third), Some(fourth)] => {
                Ok(Attended { tensors: [first, second, third, fourth] })
            }
            _ => Err(CudaError::Failed("attention has no result".to_owned())),
        }
    }

    /// The gradients by queries, keys and values from that by the result of [`Self::attention_forward`].
    pub(crate) fn attention_backward(
        self,
        packed: PackedHeads<'_>,
        attended: &Attended,
        by_attended: &Tensor,
    ) -> Result<[Tensor; 3], CudaError> {
        let [queries, keys, values] = packed.heads.map(address);
        let [query_ends, key_ends] = packed.ends.map(address);
        let [most_queries, most_keys] = packed.longest;
        let forward = attended.tensors.each_ref().map(address);
        let mut found = [std::ptr::null_mut(); 3];
        // SAFETY: as in `attention_forward`.
        let status = unsafe {
            (self.attention_backward)(
                address(by_attended),
                queries,
                keys,
                values,
                query_ends,
                key_ends,
                most_queries,
                most_keys,
                forward.as_ptr(),
                found.as_mut_ptr(),
            )
        };
        self.checked(status)?;
        let tensors = found.map(|tensor| {
            // SAFETY: as in `attention_forward`.
            NonNull::new(tensor).map(|tensor| unsafe { given(tensor) })
        });
        match tensors {
            [Some(first), Some(second), Some(third)] => Ok([first, second, third]),
            _ => Err(CudaError::Failed("attention has no gradient".to_owned())),
        }
    }

    /// Records the kernels that `work` launches on this thread. They are executed only when the graph is replayed. All
    /// tensors that `work` reads or writes, except temporary ones, must keep their addresses as long as the graph is
    /// used.
    pub(crate) fn record<E>(
        self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<Graph, E>, CudaError> {
        // SAFETY: the function takes nothing and keeps its exceptions to itself.
        let begun =
            NonNull::new(unsafe { (self.graph_begin)() }).ok_or_else(|| self.last_error())?;
        let graph = Graph { graph: begun, cuda: self };
        let done = work();
        // SAFETY: the graph was begun above by this thread and is not ended yet.
        let ended = self.checked(unsafe { (self.graph_end)(graph.graph.as_ptr()) });
        match done {
            Ok(()) => ended.map(|()| Ok(graph)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Compiles kernels for a device, with these definitions (`NAME=VALUE`).
    pub(crate) fn compile(
        self,
        device: usize,
        source: &str,
        definitions: &[String],
    ) -> Result<Arc<Module>, CudaError> {
        let text =
            |text: String| CString::new(text).map_err(|error| CudaError::Failed(error.to_string()));
        let options: Vec<CString> =
            definitions.iter().map(|one| text(format!("-D{one}"))).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let (device, source, count) =
            (index(device)?, text(source.to_owned())?, index(pointers.len())?);
        // SAFETY: the source and `count` options are C strings that outlive the call.
        let module =
            unsafe { (self.module_compile)(device, source.as_ptr(), pointers.as_ptr(), count) };
        let module = NonNull::new(module).ok_or_else(|| self.last_error())?;
        Ok(Arc::new(Module { module, device, cuda: self }))
    }

    fn checked(self, status: c_int) -> Result<(), CudaError> {
        match status {
            0 => Ok(()),
            _ => Err(self.last_error()),
        }
    }

    fn last_error(self) -> CudaError {
        // SAFETY: the text belongs to this thread and stays until this thread's next call; it is copied before that.
        let text = unsafe { CStr::from_ptr((self.error)()) };
        let text = text.to_string_lossy();
        CudaError::Failed(text.lines().next().unwrap_or("no reason given").to_owned())
    }
}

/// A recorded step. Bound to the thread that recorded it.
pub(crate) struct Graph {
    graph: NonNull<c_void>,
    cuda: Cuda,
}

impl Graph {
    /// Launches the step again on this thread's stream, without waiting for it.
    pub(crate) fn replay(&self) -> Result<(), CudaError> {
        // SAFETY: a `Graph` leaves `record` only when it was ended, and holds a pointer, so it stays on its thread.
        self.cuda.checked(unsafe { (self.cuda.graph_replay)(self.graph.as_ptr()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `graph_begin` and is freed only here.
        unsafe { (self.cuda.graph_free)(self.graph.as_ptr()) }
    }
}

/// Whether a device of this compute capability has matrix instructions for 16 bits.
fn has_matrix_instructions(capability: (i32, i32)) -> Result<(), CudaError> {
    match capability.0 >= MATRIX_CAPABILITY {
        true => Ok(()),
        false => Err(CudaError::Capability(capability)),
    }
}

/// Compiled kernels, on one device.
pub(crate) struct Module {
    module: NonNull<c_void>,
    device: c_int,
    cuda: Cuda,
}

// SAFETY: the driver's handles of modules and kernels belong to the process, not to a thread.
unsafe impl Send for Module {}
// SAFETY: as above, and nothing changes them.
unsafe impl Sync for Module {}

impl Module {
    /// A kernel of this module, which is launched with `threads` per block and `shared` bytes of dynamic shared memory.
    pub(crate) fn kernel(
        self: &Arc<Self>,
        name: &CStr,
        threads: u32,
        shared: u32,
    ) -> Result<Kernel, CudaError> {
        let bytes = index(shared as usize)?;
        // SAFETY: the module is loaded, and the name is a C string.
        let found = unsafe {
            (self.cuda.kernel_find)(self.device, self.module.as_ptr(), name.as_ptr(), bytes)
        };
        let kernel = NonNull::new(found).ok_or_else(|| self.cuda.last_error())?;
        Ok(Kernel { kernel, threads, shared, module: Arc::clone(self) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `module_compile` and is freed only here, when no kernel refers to it.
        unsafe { (self.cuda.module_free)(self.device, self.module.as_ptr()) }
    }
}

/// A kernel. Its module stays loaded as long as it lives.
pub(crate) struct Kernel {
    kernel: NonNull<c_void>,
    threads: u32,
    shared: u32,
    module: Arc<Module>,
}

// SAFETY: as for `Module`.
unsafe impl Send for Kernel {}
// SAFETY: as for `Module`.
unsafe impl Sync for Kernel {}

/// An argument of a kernel.
pub(crate) enum Arg<'a> {
    /// The address of a tensor's data.
    Tensor(&'a Tensor),
    /// A 32-bit integer.
    Int(i32),
    /// A 64-bit integer.
    Long(i64),
    /// A number in single precision.
    Float(f32),
}

impl Kernel {
    /// Launches the kernel on this thread's stream of its device, without waiting for it. Whatever device is current stays
    /// so.
    ///
    /// # Safety
    ///
    /// - `args` are the kernel's parameters in number, order and type: a tensor for every pointer, of the element type it
    ///   points to.
    /// - All tensors are contiguous, on the kernel's device, and as large as the kernel accesses them with this `grid`,
    ///   and so is all memory whose addresses are in them.
    /// - That memory is neither freed nor used by another stream until the kernel has ended. Tensors of libtorch that
    ///   were allocated on this thread's stream may be dropped: libtorch reuses their memory in the order of the stream.
    pub(crate) unsafe fn launch(&self, grid: [u32; 3], args: &[Arg<'_>]) -> Result<(), CudaError> {
        // Every argument is in the lowest bytes of eight, which is where the driver reads it.
        let values: Vec<u64> = args
            .iter()
            .map(|arg| match arg {
                Arg::Tensor(tensor) => tensor.data_ptr() as u64,
                Arg::Int(value) => u64::from(value.cast_unsigned()),
                Arg::Long(value) => value.cast_unsigned(),
                Arg::Float(value) => u64::from(value.to_bits()),
            })
            .collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast()).collect();
        let cuda = self.module.cuda;
        // SAFETY: the module is loaded; the driver copies the arguments before the call returns, and only reads them; what
        // they mean to the kernel is the caller's promise.
        let status = unsafe {
            (cuda.kernel_launch)(
                self.module.device,
                self.kernel.as_ptr(),
                grid.as_ptr(),
                self.threads,
                self.shared,
                pointers.as_mut_ptr(),
            )
        };
        cuda.checked(status)
    }
}

/// The address of a tensor, as C++ has it.
fn address(tensor: &Tensor) -> *const c_void {
    tensor.as_ptr().cast()
}

/// A tensor that the library gives away.
///
/// # Safety
///
/// The pointer is to a tensor made with `new`, and nothing else frees it.
unsafe fn given(tensor: NonNull<c_void>) -> Tensor {
    // SAFETY: the caller's promise.
    unsafe { Tensor::from_ptr(tensor.as_ptr().cast()) }
}

fn index(device: usize) -> Result<c_int, CudaError> {
    c_int::try_from(device).map_err(|_| CudaError::Failed(format!("there is no device {device}")))
}

fn load() -> Result<Cuda, CudaError> {
    if LIBRARY.is_empty() {
        return Err(CudaError::NotCompiled);
    }
    let library = in_memory().map_err(|error| CudaError::NotLoaded(error.to_string()))?;
    let path = CString::new(format!("/proc/self/fd/{}", library.as_raw_fd()))
        .map_err(|error| CudaError::NotLoaded(error.to_string()))?;
    let library = open(&path, libc::RTLD_NOW | libc::RTLD_LOCAL).map_err(CudaError::NotLoaded)?;
    let find = |name: &CStr| find(library, name);
    // SAFETY: the library was compiled with this crate from `cuda/`, where these names have these types; it is
    // never unloaded.
    unsafe {
        Ok(Cuda {
            stream_own: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(c_int) -> c_int>(
                find(c"lis_stream_own")?,
            ),
            stream_wait: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> c_int>(
                find(c"lis_stream_wait")?,
            ),
            graph_begin: std::mem::transmute::<
                NonNull<c_void>,
                unsafe extern "C" fn() -> *mut c_void,
            >(find(c"lis_graph_begin")?),
            graph_end: std::mem::transmute::<
                NonNull<c_void>,
                unsafe extern "C" fn(*mut c_void) -> c_int,
            >(find(c"lis_graph_end")?),
            graph_replay: std::mem::transmute::<
                NonNull<c_void>,
                unsafe extern "C" fn(*mut c_void) -> c_int,
            >(find(c"lis_graph_replay")?),
            graph_free: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void)>(
                find(c"lis_graph_free")?,
            ),
            memory_free: std::mem::transmute::<
                NonNull<c_void>,
                unsafe extern "C" fn(c_int, *mut c_ulonglong) -> c_int,
            >(find(c"lis_memory_free")?),
            device_capability: std::mem::transmute::<NonNull<c_void>, Capability>(find(
                c"lis_device_capability",
            )?),
            module_compile: std::mem::transmute::<NonNull<c_void>, Compile>(find(
                c"lis_module_compile",
            )?),
            module_free: std::mem::transmute::<
                NonNull<c_void>,
                unsafe extern "C" fn(c_int, *mut c_void),
            >(find(c"lis_module_free")?),
            kernel_find: std::mem::transmute::<NonNull<c_void>, Find>(find(c"lis_kernel_find")?),
            kernel_launch: std::mem::transmute::<NonNull<c_void>, Launch>(find(
                c"lis_kernel_launch",
            )?),
            attention_packed: std::mem::transmute::<NonNull<c_void>, PackedAttention>(find(
                c"lis_attention_packed",
            )?),
            attention_forward: std::mem::transmute::<NonNull<c_void>, AttentionForward>(find(
                c"lis_attention_forward",
            )?),
            attention_backward: std::mem::transmute::<NonNull<c_void>, AttentionBackward>(find(
                c"lis_attention_backward",
            )?),
            error: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> *const c_char>(
                find(c"lis_error")?,
            ),
        })
    }
}

/// The library as an anonymous file in memory.
fn in_memory() -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("graph", MemfdFlags::CLOEXEC)?);
    file.write_all(LIBRARY)?;
    Ok(file)
}

fn open(path: &CStr, flags: c_int) -> Result<NonNull<c_void>, String> {
    // SAFETY: the path is a C string. Loading runs the initialisers of libtorch or of our own library, which is what
    // linking against them would have done.
    let library = unsafe { libc::dlopen(path.as_ptr(), flags) };
    NonNull::new(library).ok_or_else(loader_error)
}

fn find(library: NonNull<c_void>, name: &CStr) -> Result<NonNull<c_void>, CudaError> {
    // SAFETY: the library is loaded and stays so, and the name is a C string.
    let function = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    NonNull::new(function).ok_or_else(|| CudaError::NotLoaded(loader_error()))
}

/// The last error of the dynamic loader.
fn loader_error() -> String {
    // SAFETY: the text is the calling thread's own until its next call to the loader, and copied at once.
    let text = unsafe { libc::dlerror() };
    match text.is_null() {
        true => "no reason given".to_owned(),
        // SAFETY: not null, so a C string, as above.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_instructions_came_with_capability_8() {
        for old in [(6, 1), (7, 0), (7, 5)] {
            let error = has_matrix_instructions(old).unwrap_err().to_string();
            assert!(error.contains(&format!("{}.{}", old.0, old.1)), "{error}");
            assert!(error.contains("8.0 is needed"), "{error}");
        }
        for new in [(8, 0), (8, 9), (9, 0), (12, 0)] {
            assert!(has_matrix_instructions(new).is_ok(), "{new:?}");
        }
    }

    #[test]
    fn the_cpu_has_no_kernels() {
        let refused = Cuda::with_matrix_instructions(Device::Cpu);
        assert!(matches!(refused, Err(CudaError::NotOnDevice)), "{refused:?}");
    }
}
