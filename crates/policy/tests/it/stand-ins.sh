# stand-ins.sh DIRECTORY-OF-PYTORCH TO: stub libraries in place of CUDA's, where those are not installed.
libraries=$(ls "$1"/torch/lib/*.so)
missing=$(for library in $libraries; do ldd "$library"; done | awk '/not found/ {print $1}' | sort -u)
if [ -z "$missing" ]; then exit 0; fi
symbols() { nm -D "$1" $2 2>/dev/null | awk 'NF > 1 {print $NF}' | sed 's/@.*//' | sort -u; }
symbols --undefined-only "$libraries" > "$2/asked"
symbols --defined-only "$libraries $(find "$1/nvidia" -name '*.so*')" > "$2/there"
comm -23 "$2/asked" "$2/there" | grep -E '^(cu|nv|nccl)' | sed 's/.*/char &[64];/' > "$2/all.c"
# Symbols are asked for in versions, which mostly have the library's name.
for library in $libraries; do LC_ALL=C readelf -V "$library"; done |
    awk '/File: / {file = $5} /Name: / {print file, $3}' | sort -u > "$2/versions"
for library in $missing; do
    version=$(awk -v name="$library" '$1 == name {print $2; exit}' "$2/versions")
    echo "${version:-VERSION_1} { *; };" > "$2/script"
    cc -shared -o "$2/$library" -Wl,-soname="$library" -Wl,--version-script="$2/script" -x c "$2/all.c" || exit 1
done
