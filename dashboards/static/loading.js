// Scripts that only some pages need.

const loading = new Map();

export function load(name) {
  if (!loading.has(name)) loading.set(name, new Promise((resolve, reject) => {
    const script = document.createElement("script");
    Object.assign(script, { src: `/static/${name}`, onload: resolve, onerror: reject });
    document.head.append(script);
  }));
  return loading.get(name);
}
