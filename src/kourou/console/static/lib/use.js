// Hooks that ask the server while a component is on screen.

import { get } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./ui.js";

/**
 * The answer to a GET: {data, error, loading, reload}. `every` repeats it after so many milliseconds while the tab is
 * visible. The last answer stays until the next one is there, unless the path changes. A null path asks nothing.
 */
export function useAnswer(path, query = {}, { every = 0 } = {}) {
  const key = path === null ? null : `${path}?${JSON.stringify(query)}`;
  const [state, setState] = useState({ path: null, data: null, error: null, loading: true });
  const running = useRef(null);
  const ask = useCallback(async () => {
    if (path === null) return;
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    setState((was) => ({ path, data: was.path === path ? was.data : null, error: was.error, loading: true }));
    try {
      const data = await get(path, query, { signal: stop.signal });
      setState({ path, data, error: null, loading: false });
    } catch (error) {
      if (error.name === "AbortError") return;
      setState((was) => ({ path, data: was.path === path ? was.data : null, error, loading: false }));
    }
  }, [key]);
  useEffect(() => {
    ask();
    return () => running.current?.abort();
  }, [ask]);
  useInterval(ask, path === null ? 0 : every);
  return { ...(state.path === path ? state : { data: null, error: null, loading: path !== null }), reload: ask };
}

/** Calls back every so many milliseconds while the tab is visible, and when it becomes visible. 0 is never. */
export function useInterval(callback, every) {
  const latest = useRef(callback);
  latest.current = callback;
  useEffect(() => {
    if (!every) return undefined;
    const tick = () => {
      if (document.visibilityState === "visible") latest.current();
    };
    const timer = setInterval(tick, every);
    document.addEventListener("visibilitychange", tick);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }, [every]);
}

/** An action with its state: {run, busy, error}. `run` resolves to the answer, or undefined after an error. */
export function useAction(action) {
  const [state, setState] = useState({ busy: false, error: null });
  const run = async (...values) => {
    setState({ busy: true, error: null });
    try {
      const answer = await action(...values);
      setState({ busy: false, error: null });
      return answer ?? {};
    } catch (error) {
      setState({ busy: false, error });
      return undefined;
    }
  };
  return { run, ...state };
}

/** Text that follows an input after a pause, so that not every key asks the server. */
export function useLater(value, wait = 250) {
  const [late, setLate] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setLate(value), wait);
    return () => clearTimeout(timer);
  }, [value, wait]);
  return late;
}
